r"""L0 regularisation with hard concrete gates (Louizos, Welling and Kingma, ICLR 2018).

One gate per unit: with :math:`u \sim U(0, 1)`,

.. math:: s = S\big((\log u - \log(1-u) + \log a)/\beta\big), \qquad z = \min(1, \max(0, s(\zeta-\gamma) + \gamma)),

:math:`\beta = 2/3, \gamma = -0.1, \zeta = 1.1`, so that z is exactly 0 or 1 with some probability. The penalty is the
expected number of units or weights, and the weights' squares, over the number N of examples:

.. math:: \frac1N\sum_g P(z_g > 0)\,\big(\lambda|g| + \tfrac{d}{2}\lVert w_g\rVert^2\big), \qquad
    P(z > 0) = S(\log a - \beta\log(-\gamma/\zeta)),

with |g| the number of weights that read the unit (``per="weight"``) or 1 (``per="unit"``). At test time :math:`z =
\min(1, \max(0, S(\log a)(\zeta-\gamma)+\gamma))`.

Published: LeNet-5, 20-25-45-462 at 0.9 %, and 9-18-65-25 at 1.0 % with one lambda per layer; LeNet-300-100, 219-214-100
at 1.4 % and 266-88-33 at 1.8 % (the last two from memory, not checked).

Deviations: the default counts units. If weights are counted, the inputs of the first layer, which most weights read,
die long before the hidden units do (LeNet-300-100, lambda 1, 15 epochs: 205-251-96 at 4.97 %); the authors chose one
lambda per layer by hand for their smallest networks, and counting units is such a choice. z is drawn per example, as
for the other gates here; the authors' LeNets draw one per batch. There are gates on the inputs of every layer and on
the output channels of the last convolution. The gates learn faster than the weights, by ``gate_lr``: at the same rate
they hardly move in 15 epochs. The parameters are not averaged over the steps at test time.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vbdrop.layers import NoisyLayer
from vbdrop.methods.shared.checks import check_choice, check_not_negative, check_positive, check_share
from vbdrop.methods.shared.input_modules import gate_groups, gates_of, put_gates_, take_out_
from vbdrop.methods.shared.losses import cross_entropy, negative_elbo
from vbdrop.train.method import Batch, Family, Method, Step

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1
"""The temperature, and the interval over which the relaxed gate is stretched."""

LIMITS = (math.log(1e-2), math.log(1e2))
"""The range of ``log_a``."""

START_DEVIATION = 0.01
"""The spread of ``log_a`` at the start."""


def stretched(s: Tensor) -> Tensor:
    """The relaxed gate stretched to [gamma, zeta] and cut to [0, 1].

    Example:
        >>> stretched(torch.tensor([0.05, 0.5, 0.95]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    return (s * (ZETA - GAMMA) + GAMMA).clamp(0.0, 1.0)


def open_probability(log_a: Tensor) -> Tensor:
    r""":math:`P(z > 0)`.

    Example:
        >>> round(open_probability(torch.tensor(0.0)).item(), 4)
        0.8318
    """
    return torch.sigmoid(log_a - BETA * math.log(-GAMMA / ZETA))


class HardConcreteGate(nn.Module):
    """Multiplies each unit by a hard concrete gate.

    Args:
        units: The number of units.
        axis: Their axis, counted from the end; a gate is shared over the following axes.
        rate: The initial dropout rate.

    Example:
        >>> gate = HardConcreteGate(3, -1, rate=0.5).eval()
        >>> gate(torch.ones(1, 3)).round(decimals=1)
        tensor([[0.5000, 0.5000, 0.5000]], grad_fn=...)
    """

    def __init__(self, units: int, axis: int, rate: float) -> None:
        super().__init__()
        self.axis = axis
        start = math.log1p(-rate) - math.log(rate)
        self.log_a = nn.Parameter(start + START_DEVIATION * torch.randn(units))

    def values(self) -> Tensor:
        """The gate's factors in eval mode."""
        return stretched(torch.sigmoid(self.log_a))

    def forward(self, x: Tensor) -> Tensor:
        """The gated features."""
        if self.training:
            uniform = torch.rand(x.shape[: x.dim() + self.axis + 1], dtype=x.dtype, device=x.device)
            z = stretched(torch.sigmoid((torch.logit(uniform, eps=1e-6) + self.log_a) / BETA))
        else:
            z = self.values()
        return x * z.view(*z.shape, *[1] * (-self.axis - 1))


@dataclass(frozen=True)
class HardConcrete(Method):
    """Gates on units with a penalty on the expected number of open ones.

    Attributes:
        weight: The penalty lambda per unit or weight; larger values leave fewer units.
        per: What the penalty counts: every ``"unit"`` once, or every ``"weight"`` that reads it.
        decay: The factor d on the expected squares.
        rate: The initial dropout rate of a unit's gate.
        input_rate: The same for the network's inputs.
        gate_lr: The learning rate of the gates, as a factor on that of the weights.

    Example:
        >>> HardConcrete().build(nn.Linear(4, 2)).gate.log_a.shape
        torch.Size([4])
    """

    name: ClassVar[str] = "l0"
    title: ClassVar[str] = "L0, hard concrete"
    paper: ClassVar[str] = "Louizos et al. 2018, ICLR"
    family: ClassVar[Family] = "structured"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"weight": (15.0, 25.0, 50.0, 100.0, 200.0, 400.0)}

    weight: float = 50.0
    per: Literal["unit", "weight"] = "unit"
    decay: float = 0.0
    rate: float = 0.5
    input_rate: float = 0.2
    gate_lr: float = 5.0

    def __post_init__(self) -> None:
        check_positive(self, "weight", "gate_lr")
        check_choice(self, "per", ("unit", "weight"))
        check_not_negative(self, "decay")
        check_share(self, "rate", "input_rate")

    def build(self, model: nn.Module) -> nn.Module:
        """Put a gate on every unit."""
        put_gates_(
            model,
            lambda units, axis, inputs: HardConcreteGate(units, axis, self.input_rate if inputs else self.rate),
        )
        return model

    def groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """Put the gates into their own group."""
        return gate_groups(model, lr=lr, gate_lr=self.gate_lr * lr)

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy under one draw of the gates, and the penalty on open ones."""
        loss = cross_entropy(model, batch)
        for layer, name, gate in gates_of(model):
            if isinstance(gate, HardConcreteGate):
                loss = negative_elbo(loss, self.penalty(layer, name, gate), step.n_train)
        return loss

    def penalty(self, layer: NoisyLayer, name: str, gate: HardConcreteGate) -> Tensor:
        """Lambda times the expected number of units or weights behind the gate, and the weights' expected squares."""
        open_share = open_probability(gate.log_a)
        size = layer.weight.numel() / open_share.numel() if self.per == "weight" else 1.0
        penalty = self.weight * size * open_share.sum()
        if self.decay:
            spread = layer.per_input(open_share) if name == "gate" else layer.per_output(open_share)
            penalty = penalty + 0.5 * self.decay * (spread * layer.weight.square()).sum()
        return penalty

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: Step) -> None:
        """Keep ``log_a`` within its limits."""
        for _, _, gate in gates_of(model):
            gate.get_parameter("log_a").clamp_(*LIMITS)

    def finish(self, model: nn.Module) -> nn.Module:
        """The network with the gates folded into its weights, in place."""
        return take_out_(model, lambda gate: gate.values() if isinstance(gate, HardConcreteGate) else None)
