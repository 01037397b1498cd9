r"""Magnitude pruning (Han, Pool, Tran and Dally, NIPS 2015): train, prune, retrain, and repeat.

After training, a weight is pruned if :math:`|w| < q\, s`, with q the ``quality`` parameter and s the standard deviation
of the layer's weights; the survivors keep their values and are retrained at a tenth of the learning rate. Pruning and
retraining are repeated; a pruned weight never comes back.

Published: LeNet-300-100 1.64 -> 1.59 %, 12 times fewer weights (8, 9, 26 % remain); LeNet-5 0.80 -> 0.77 %, 12 times
(66, 12, 8, 19 % remain).

Deviations: everything is one run, whose first share ``pretrain`` is the training, followed by ``rounds`` prunings at
equal intervals, the last with twice the time to retrain. s is computed over the remaining weights. One quality
parameter for all layers. The number of rounds is not published for the LeNets. The protocol's Adam and its schedule,
where the paper used SGD: the optimizer's steps are shortened to a tenth after the fact, which for Adam is the same as
a tenth of the learning rate. L2 in the loss, with the gradient of Caffe's example, 5e-4 w; biases are kept.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vbdrop.methods.shared.checks import check_count, check_not_negative, check_positive, check_share
from vbdrop.methods.shared.losses import cross_entropy, squared_weights
from vbdrop.methods.shared.masks import MASK, add_masks_, apply_masks_, mask_of, remove_buffers_
from vbdrop.methods.shared.run_parts import started, starts_next
from vbdrop.train.method import Batch, Family, Method, Step
from vbdrop.train.sparsity import weight_layers

BEFORE = ("weight_before", "bias_before")
"""Buffers: the parameters before the optimizer's step, by which the step is shortened."""


def prune_(layer: nn.Module, quality: float) -> None:
    """Prune the layer's weights below ``quality`` standard deviations of the remaining ones.

    Example:
        >>> layer = nn.Linear(4, 1)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, -1.0, 0.1, -0.1]]))
        >>> add_masks_(layer)
        >>> prune_(layer, quality=1.0)  # the standard deviation is 0.82
        >>> mask_of(layer)
        tensor([[ True,  True, False, False]])
    """
    mask, weight = mask_of(layer), layer.get_parameter("weight").detach()
    limit = quality * weight[mask].std() if int(mask.sum()) > 1 else weight.new_zeros(())
    mask &= weight.abs() >= limit


@dataclass(frozen=True)
class MagnitudePruning(Method):
    """Train, then repeatedly prune small weights and retrain.

    Attributes:
        quality: Weights below this many standard deviations are pruned.
        rounds: The number of prunings.
        pretrain: The share of the run before the first pruning.
        retrain_lr: The factor on the learning rate in retraining.
        decay: The factor on the sum of squared weights in the loss.

    Example:
        >>> sorted(MagnitudePruning().build(nn.Linear(4, 2)).state_dict())
        ['bias', 'bias_before', 'mask', 'weight', 'weight_before']
    """

    name: ClassVar[str] = "magnitude-pruning"
    title: ClassVar[str] = "Pruning"
    paper: ClassVar[str] = "Han et al. 2015, NIPS"
    family: ClassVar[Family] = "weights"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"quality": (0.2, 0.3, 0.4, 0.6, 0.8, 1.0)}

    quality: float = 0.8
    rounds: int = 4
    pretrain: float = 0.3
    retrain_lr: float = 0.1
    decay: float = 2.5e-4

    def __post_init__(self) -> None:
        check_positive(self, "quality", "retrain_lr")
        check_count(self, "rounds")
        check_share(self, "pretrain")
        check_not_negative(self, "decay")

    def build(self, model: nn.Module) -> nn.Module:
        """Add the masks, and the buffers that hold the parameters before a step."""
        add_masks_(model)
        for _, layer in weight_layers(model):
            for name, parameter in zip(BEFORE, (layer.weight, layer.bias), strict=True):
                if parameter is not None:
                    layer.register_buffer(name, parameter.detach().clone())
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy and the L2 penalty."""
        return cross_entropy(model, batch) + self.decay * squared_weights(model)

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: Step) -> None:
        """Shorten the step in retraining; prune when a round starts; keep pruned weights at zero."""
        factor = self.retrain_lr if started(self.pretrain, step) else 1.0
        for parameter, before in _with_before(model):
            before.lerp_(parameter, factor)
            parameter.copy_(before)
        length = (1 - self.pretrain) / (self.rounds + 1)
        if any(starts_next(self.pretrain + index * length, step) for index in range(self.rounds)):
            for _, layer in weight_layers(model):
                prune_(layer, self.quality)
        apply_masks_(model)

    def finish(self, model: nn.Module) -> nn.Module:
        """The pruned network without its buffers, in place."""
        for _, layer in weight_layers(model):
            for name in BEFORE:
                layer._buffers.pop(name, None)
        return remove_buffers_(model, MASK)


def _with_before(model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Each weight and bias, with its value before the step."""
    for _, layer in weight_layers(model):
        for name, parameter in zip(BEFORE, (layer.weight, layer.bias), strict=True):
            if parameter is not None:
                yield parameter, layer.get_buffer(name)
