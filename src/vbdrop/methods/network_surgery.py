r"""Dynamic network surgery (Guo, Yao and Chen, NIPS 2016): weights are cut, and spliced back if they grow again.

Every weight W is kept and updated; the forward uses :math:`W \circ T` with a binary mask T. At an update of T,

.. math:: T \leftarrow 0 \text{ if } |W| \le 0.9\,t, \qquad T \leftarrow 1 \text{ if } |W| > 1.1\,t, \qquad
    t = \max(m + c\,s, 0),

otherwise it stays; m and s are mean and standard deviation of :math:`|W|` in the layer, computed once from the trained
network, and c is ``c_rate``. T is updated with probability :math:`(1 + \gamma i)^{-1}` at step i of the surgery, which
ends before the run does: the rest trains the survivors.

Published: LeNet-300-100 2.28 -> 1.99 %, 56 times fewer weights (the released network, measured: 53.8 times at 1.99
%); LeNet-5 0.91 -> 0.91 %, 108 times.

Deviations: pretraining, surgery and training of the survivors are shares of one run. The example in the authors'
README has :math:`\gamma` = 1e-4 over 14,000 steps, so that the probability falls to 1 / 2.4: ``slowdown`` is that 1.4,
whatever the length of the run. One ``c_rate`` for all layers; the authors tuned it per layer and released one.
Biases are not masked. The protocol's Adam instead of SGD with momentum, and L2 in the loss with the gradient of
Caffe's example, 5e-4 W: all W are updated with the gradient at :math:`W \circ T`, by Adam's steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vbdrop.methods.shared.checks import check_not_negative, check_share
from vbdrop.methods.shared.losses import cross_entropy
from vbdrop.methods.shared.masks import MASK, add_buffers_, add_masks_, apply_masks_, mask_of, remove_buffers_
from vbdrop.methods.shared.run_parts import first_step, starts_next
from vbdrop.train.method import Batch, Family, Method, Step
from vbdrop.train.sparsity import weight_layers

CUT, SPLICE = 0.9, 1.1
"""The two limits, as factors on the threshold: the gap between them keeps a weight from flickering."""


def surgery(mask: Tensor, dense: Tensor, threshold: Tensor) -> Tensor:
    """The mask after an update: small weights are cut, large ones spliced, those in between stay.

    Example:
        >>> mask = torch.tensor([True, True, False, False])
        >>> surgery(mask, torch.tensor([0.8, 1.0, 1.0, 1.2]), torch.tensor(1.0))
        tensor([False,  True, False,  True])
    """
    size = dense.abs()
    return (mask & (size > CUT * threshold)) | (size > SPLICE * threshold)


@dataclass(frozen=True)
class NetworkSurgery(Method):
    """Cut and splice weights around a threshold while all of them keep learning.

    Attributes:
        c_rate: The threshold is this many standard deviations above the mean size of a layer's weights.
        pretrain: The share of the run before the surgery.
        stop: The share of the run at which the surgery ends.
        slowdown: An update's probability at the end of the surgery is ``1 / (1 + slowdown)``.
        decay: The factor on the sum of all squared weights, including cut ones, in the loss.

    Example:
        >>> sorted(NetworkSurgery().build(nn.Linear(4, 2)).state_dict())
        ['bias', 'dense', 'mask', 'threshold', 'weight']
    """

    name: ClassVar[str] = "network-surgery"
    title: ClassVar[str] = "DNS"
    paper: ClassVar[str] = "Guo et al. 2016, NIPS"
    family: ClassVar[Family] = "weights"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"c_rate": (2.5, 3.0, 4.0, 5.0, 6.0, 7.0)}

    c_rate: float = 2.5
    pretrain: float = 0.2
    stop: float = 0.7
    slowdown: float = 1.4
    decay: float = 2.5e-4

    def __post_init__(self) -> None:
        check_not_negative(self, "c_rate", "slowdown", "decay")
        check_share(self, "pretrain", "stop")
        if self.stop <= self.pretrain:
            raise ValueError(
                f"`stop` of NetworkSurgery must be after `pretrain`; got stop={self.stop}, pretrain={self.pretrain}."
            )

    def build(self, model: nn.Module) -> nn.Module:
        """Add the masks, the thresholds and the dense weights W."""
        add_masks_(model)
        add_buffers_(model, dense=None, threshold=torch.zeros(()))
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        r"""The cross-entropy at :math:`W \circ T`, and an L2 penalty that reaches all of W."""
        loss = cross_entropy(model, batch)
        for _, layer in weight_layers(model):
            # the gradient of decay * sum(W**2), given to the parameter that stands in for W
            loss = loss + (2 * self.decay * layer.get_buffer("dense") * layer.weight).sum()
        return loss

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: Step) -> None:
        """Apply the optimizer's step to all of W, and update the masks with the step's probability."""
        start, stop = first_step(self.pretrain, step), first_step(self.stop, step)
        for _, layer in weight_layers(model):
            dense, threshold, mask = layer.get_buffer("dense"), layer.get_buffer("threshold"), mask_of(layer)
            # a cut weight was zero before the optimizer's step, so it now holds that step
            dense.copy_(torch.where(mask, layer.weight, dense + layer.weight))
            if starts_next(self.pretrain, step):
                size = dense.abs()
                threshold.copy_((size.mean() + self.c_rate * size.std()).clamp_min(0.0))
            if start <= step.index < stop:
                gone = (step.index - start) / (stop - start)
                if torch.rand(()).item() < 1 / (1 + self.slowdown * gone):
                    mask.copy_(surgery(mask, dense, threshold))
            layer.weight.copy_(dense)
        apply_masks_(model)

    def finish(self, model: nn.Module) -> nn.Module:
        """The masked network without its buffers, in place."""
        return remove_buffers_(model, MASK, "dense", "threshold")
