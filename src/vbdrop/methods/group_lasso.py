r"""Structured sparsity learning (SSL; Wen, Wu, Wang, Chen and Li, NIPS 2016): group lasso on units and channels.

The loss adds :math:`\lambda\sum_n\lVert W_{n\cdot}\rVert_2 + \lambda\sum_c\lVert W_{\cdot c}\rVert_2` for each layer:
a group is all weights of an output unit or filter n, or all weights that read an input unit or channel c. Groups that
end at zero are removed, and the rest is fine-tuned without the penalty.

Published: LeNet-500-300, 434-174-78 units at 1.49 to 1.53 % (original 1.43 %); LeNet-5, 3-12 filters at 1.0 %
(original 20-50 at 0.9 %).

Deviations: one lambda for all groups; the lambdas of the published tables are not known. The output layer has groups
only on its inputs, the image's own channels none. Adam's steps do not shrink with the gradient, so a dead group keeps
oscillating at the scale of the learning rate and never falls below the authors' limit of 1e-4 on single weights. Here,
at the share ``cut`` of the run, a group is dead if the root mean square of its weights is below ``threshold``; it stays
at zero while the rest of the run fine-tunes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import ConvNd, ConvTransposeNd
from vbdrop.methods.shared.checks import check_not_negative, check_positive, check_share
from vbdrop.methods.shared.losses import cross_entropy
from vbdrop.methods.shared.masks import MASK, add_masks_, apply_masks_, mask_of, remove_buffers_
from vbdrop.methods.shared.run_parts import started, starts_next
from vbdrop.train.method import Batch, Family, Method, Step
from vbdrop.train.sparsity import weight_layers

FLOOR = 1e-16
"""Added under the root, for a gradient at zero."""


def group_norms(weight: Tensor, axis: int) -> Tensor:
    """The Euclidean norm of each group of weights along this axis.

    Example:
        >>> group_norms(torch.tensor([[3.0, 0.0], [4.0, 0.0]]), axis=1)
        tensor([5.0000e+00, 1.0000e-08])
    """
    others = [other for other in range(weight.dim()) if other != axis]
    return weight.square().sum(others).add(FLOOR).sqrt()


def groups_of(model: nn.Module) -> Iterator[tuple[nn.Module, Tensor, int]]:
    """Every kind of group: the layer, its weight, and the axis along which the groups run.

    Example:
        >>> from vbdrop.models import LeNet5
        >>> [(tuple(weight.shape), axis) for _, weight, axis in groups_of(LeNet5())][:3]
        [((20, 1, 5, 5), 0), ((50, 20, 5, 5), 0), ((50, 20, 5, 5), 1)]
    """
    layers = [layer for _, layer in weight_layers(model)]
    for index, layer in enumerate(layers):
        outputs, inputs = (1, 0) if isinstance(layer, ConvTransposeNd) else (0, 1)
        if index < len(layers) - 1:
            yield layer, layer.weight, outputs
        if not (index == 0 and isinstance(layer, ConvNd)):
            yield layer, layer.weight, inputs


@dataclass(frozen=True)
class GroupLasso(Method):
    """Group lasso on units and channels, then fine-tuning of the remaining weights.

    Attributes:
        weight: The factor lambda on the norm of a group.
        cut: The share of the run at which dead groups are removed and the penalty ends.
        threshold: The root mean square of a group's weights below which it is dead.

    Example:
        >>> sorted(GroupLasso().build(nn.Linear(4, 2)).state_dict())
        ['bias', 'mask', 'weight']
    """

    name: ClassVar[str] = "ssl"
    title: ClassVar[str] = "SSL"
    paper: ClassVar[str] = "Wen et al. 2016, NIPS"
    family: ClassVar[Family] = "structured"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"weight": (2e-4, 4e-4, 6e-4, 8e-4, 1.2e-3, 1.6e-3)}

    weight: float = 8e-4
    cut: float = 0.6
    threshold: float = 5e-3

    def __post_init__(self) -> None:
        check_not_negative(self, "weight")
        check_positive(self, "threshold")
        check_share(self, "cut")

    def build(self, model: nn.Module) -> nn.Module:
        """Add the masks."""
        add_masks_(model)
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy and, before the cut, the sum of the groups' norms."""
        loss = cross_entropy(model, batch)
        if not started(self.cut, step):
            loss = loss + self.weight * self.penalty(model)
        return loss

    def penalty(self, model: nn.Module) -> Tensor:
        """The sum of the norms of all groups."""
        return torch.stack([group_norms(weight, axis).sum() for _, weight, axis in groups_of(model)]).sum()

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: Step) -> None:
        """Remove the dead groups at the cut, and keep them at zero."""
        if starts_next(self.cut, step):
            for layer, weight, axis in groups_of(model):
                size = weight.numel() / weight.shape[axis]
                dead = group_norms(weight, axis) < self.threshold * size**0.5
                shape = [-1 if other == axis else 1 for other in range(weight.dim())]
                mask_of(layer).masked_fill_(dead.view(shape), False)
        apply_masks_(model)

    def finish(self, model: nn.Module) -> nn.Module:
        """The network without its masks, in place."""
        return remove_buffers_(model, MASK)
