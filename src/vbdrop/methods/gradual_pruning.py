r"""Gradual magnitude pruning (Zhu and Gupta 2017): the smallest weights are pruned while the network trains.

Every ``every`` steps, each layer keeps its largest weights, at the sparsity

.. math:: s_t = s_f\,\Big(1 - \Big(1 - \frac{t - t_0}{t_1 - t_0}\Big)^3\Big)

which rises from 0 at the share ``start`` of the run to :math:`s_f` = ``sparsity`` at the share ``stop``. A pruned
weight gets no update and does not come back. Gradual pruning is the usual choice in practice; in "The State of
Sparsity" (Gale et al. 2019) it held its own against variational dropout on large tasks.

Published: none for the LeNets in the paper itself.

Deviations: the same sparsity in every layer, as published, except for the output layer, which is pruned to 80 % at
most, as Gale et al. do with the last layer of their networks. L2 in the loss, with the gradient 1e-4 w. ``start`` and
``stop`` are shares of the run, where the paper counts steps; the protocol's Adam.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vbdrop.methods.shared.checks import check_count, check_not_negative, check_share
from vbdrop.methods.shared.losses import cross_entropy, squared_weights
from vbdrop.methods.shared.masks import MASK, add_masks_, apply_masks_, keep_largest, mask_of, remove_buffers_
from vbdrop.methods.shared.run_parts import first_step
from vbdrop.train.method import Batch, Family, Method, Step, option
from vbdrop.train.sparsity import weight_layers


def cubic_sparsity(final: float, done: float) -> float:
    """The sparsity when this share of the pruning is done: 0 at 0, ``final`` at 1, most of it early.

    Example:
        >>> round(cubic_sparsity(0.8, 0.5), 4)
        0.7
    """
    return final * (1 - (1 - min(max(done, 0.0), 1.0)) ** 3)


@dataclass(frozen=True)
class GradualPruning(Method):
    """Prune the smallest weights of each layer on a cubic schedule.

    Attributes:
        sparsity: The final share of pruned weights.
        start: The share of the run at which pruning starts.
        stop: The share of the run at which the final sparsity is reached.
        every: The steps between two prunings.
        output_sparsity: The largest sparsity of the output layer.
        decay: The factor on the sum of squared weights in the loss.

    Example:
        >>> sorted(GradualPruning().build(nn.Linear(4, 2)).state_dict())
        ['bias', 'mask', 'weight']
    """

    name: ClassVar[str] = "gradual-pruning"
    title: ClassVar[str] = "Gradual pruning"
    paper: ClassVar[str] = "Zhu and Gupta 2017, arXiv:1710.01878"
    family: ClassVar[Family] = "weights"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"sparsity": (0.95, 0.97, 0.98, 0.99, 0.995, 0.998)}

    sparsity: float = 0.95
    start: float = 0.1
    stop: float = 0.7
    every: int = 100
    output_sparsity: float = option(0.8, absent=1.0)
    decay: float = option(5e-5, absent=0.0)

    def __post_init__(self) -> None:
        check_share(self, "sparsity", "stop")
        check_share(self, "start", zero=True)
        check_count(self, "every")
        check_not_negative(self, "output_sparsity", "decay")
        if self.stop <= self.start:
            raise ValueError(
                f"`stop` of GradualPruning must be after `start`; got stop={self.stop}, start={self.start}."
            )

    def build(self, model: nn.Module) -> nn.Module:
        """Add the masks."""
        add_masks_(model)
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy and the L2 penalty."""
        return cross_entropy(model, batch) + self.decay * squared_weights(model)

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: Step) -> None:
        """Prune further if it is due, and keep pruned weights at zero."""
        apply_masks_(model)
        start, stop, now = first_step(self.start, step), first_step(self.stop, step), step.index + 1
        if now == stop or (start <= now < stop and (now - start) % self.every == 0):
            sparsity = cubic_sparsity(self.sparsity, (now - start) / (stop - start) if stop > start else 1.0)
            layers = [layer for _, layer in weight_layers(model)]
            for layer in layers:
                share = min(sparsity, self.output_sparsity) if layer is layers[-1] else sparsity
                kept = layer.weight.numel() - round(share * layer.weight.numel())
                mask_of(layer).copy_(keep_largest(layer.weight.abs(), max(1, kept)))
            apply_masks_(model)

    def finish(self, model: nn.Module) -> nn.Module:
        """The pruned network without its masks, in place."""
        return remove_buffers_(model, MASK)
