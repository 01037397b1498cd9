r"""Variational Bayesian dropout on units (Liu et al., CVPR 2019, section 5.2): smaller layers.

The output of an activation is multiplied by one gate per unit or channel (Eq. 19), :math:`B' = f(B) \circ W'` with
:math:`q(w') = N(\theta, \alpha\theta^2)` and the penalty :math:`\sum\tfrac12\log(1 + \alpha^{-1})` over the number of
examples. A unit is dead if :math:`\log\alpha \ge` ``threshold``; its gate is folded into the weights. With
``shrink_every``, units that stay dead are removed while the network trains.

VIBNet (Dai, Zhu, Guo and Wipf, ICML 2018) has the same gate and the same penalty from the information bottleneck, but
counts a channel's term once for every position of its feature map: ``weighting="positions"``. In a network of linear
layers there is one position, and the two are the same method.

Published (Table 5): LeNet-500-300, 1.35 %, 179-160-60 units (14.0 times fewer weights); LeNet-5, 0.66 %, 16-34-123-62
(19.4 times). VIBNet: LeNet-300-100, 97-71-33 at 1.6 % (27.8 times).

Deviations: the weight of the penalty is not published, and 1 is too weak for so few gates, so ``kl_weight`` is chosen
on validation data. A gate's noise is drawn per example (the released layer draws one per batch) and shared over space.
There are gates on the inputs of a layer, which is the same place, and on the output channels of the last convolution;
the released layer also masks in training. Training is from scratch, where VIBNet starts from a trained network; with
``pretrain``, the first share of the run makes one. ``refine`` is ours: a last share without the penalty.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from vbdrop.convert import convert_, deterministic_, param_groups
from vbdrop.layers import Gate, Units, Variational
from vbdrop.methods.shared.checks import check_choice, check_not_negative, check_number, check_positive, check_share
from vbdrop.methods.shared.input_modules import unit_gates
from vbdrop.methods.shared.losses import cross_entropy, variational_loss, weighted_loss
from vbdrop.methods.shared.stages import Staged
from vbdrop.train.method import Batch, Family, Step, option


@dataclass(frozen=True)
class VBDGates(Staged):
    """One gate per unit under the hierarchical prior.

    Attributes:
        kl_weight: The factor on the penalty; larger values leave fewer units.
        threshold: The ``log_alpha`` at or above which a unit is dead.
        weighting: ``"units"``: every unit counts once; ``"positions"``: once for every position of its feature map.
        gate_lr: The learning rate of the gates, as a factor on that of the weights.
        hold: The share of the run, after ``pretrain``, for which the penalty is held at 0.
        ramp: The share of the run over which it then rises.
        pretrain: The first share of the run, in which the plain network trains, all gates at 1; 0 for none.
        refine: The last share of the run, in which the penalty is off, dead gates stay dead, and the survivors train
            with the noise that they have; 0 for none.

    Example:
        >>> VBDGates().build(nn.Linear(4, 2)).gate
        Gate(4 units, threshold=0.0)
    """

    name: ClassVar[str] = "vbd-gates"
    title: ClassVar[str] = "VBD"
    paper: ClassVar[str] = "Liu et al. 2019, CVPR"
    family: ClassVar[Family] = "structured"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"kl_weight": (5.0, 10.0, 15.0, 20.0, 30.0, 40.0)}

    kl_weight: float = 20.0
    threshold: float = 0.0
    weighting: Literal["units", "positions"] = "units"
    gate_lr: float = 1.0
    hold: float = 0.025
    ramp: float = 0.075
    pretrain: float = option(0.0)
    refine: float = option(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "kl_weight")
        check_number(self, "threshold")
        check_choice(self, "weighting", ("units", "positions"))
        check_positive(self, "gate_lr")
        check_share(self, "hold", "ramp", zero=True)

    def convert(self, model: nn.Module) -> None:
        """Convert every layer with `vbdrop.Units`, including the output channels of the last convolution."""
        convert_(model, unit_gates(Units(threshold=self.threshold), model))

    def groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """Put the gates into their own group, without weight decay."""
        return param_groups(model, lr=lr, rate_lr=self.gate_lr * lr, weight_decay=0.0)

    def penalised_loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy under one draw of the gates, and the penalty over the number of examples."""
        hold = self.pretrain + self.hold
        if self.weighting == "units":
            nll = cross_entropy(model, batch)
            return variational_loss(model, nll, step, weight=self.kl_weight, hold=hold, ramp=self.ramp)
        positions: dict[Variational, int] = {}
        gates = [module for module in model.modules() if isinstance(module, Gate)]
        hooks = [gate.register_forward_pre_hook(partial(_count_positions, positions)) for gate in gates]
        try:
            nll = cross_entropy(model, batch)
        finally:
            for hook in hooks:
                hook.remove()
        return weighted_loss(model, nll, step, positions.__getitem__, weight=self.kl_weight, hold=hold, ramp=self.ramp)

    def finish(self, model: nn.Module) -> nn.Module:
        """The mean network with the gates folded into its weights, in place."""
        return deterministic_(model)


def _count_positions(positions: dict[Variational, int], gate: nn.Module, args: tuple[Tensor, ...]) -> None:
    """Record how many positions the feature map at this gate has."""
    if isinstance(gate, Gate):
        positions[gate] = prod(args[0].shape[args[0].dim() + gate.axis + 1 :])
