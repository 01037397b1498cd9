r"""Structured Bayesian pruning (Neklyudov, Molchanov, Ashukha and Vetrov, NIPS 2017): truncated log-normal gates.

Each unit or channel is multiplied by :math:`\theta = e^z`, z normal and truncated to [-20, 0], with the log-uniform
prior on the same interval. The loss is the mean cross-entropy plus ``kl_weight`` times the KL (a sum over the units)
over the number of examples. A unit is kept if its signal-to-noise ratio :math:`E\theta/\sqrt{Var\,\theta}` exceeds 1;
at test time it is multiplied by :math:`E\theta`. The formulas are in
`vbdrop.methods.shared.truncated_log_normal`.

Published: LeNet-500-300, 1.55 %, 245-160-55 units; LeNet-5, 0.86 %, 3-18-284-283. A rerun by others on LeNet-500-300:
255-100-43.

Deviations: the pretraining is the first share of the same run (the authors restored a checkpoint). The noise is drawn
per example, as for the other gates here; the released code draws one per batch. There are gates on the inputs of every
layer and on the output channels of the last convolution; the released LeNet-5 has gates only after its convolutions,
and cannot yield the published structure. The moments are computed in float64, in forms that stay finite, where the
released code replaces NaN and infinity of ``erfcx`` by 1. ``kl_weight`` is 1 in the paper and a knob here. The
protocol's Adam has beta1 = 0.9, not 0.95.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vbdrop.methods.shared import truncated_log_normal
from vbdrop.methods.shared.checks import check_not_negative, check_positive, check_share
from vbdrop.methods.shared.input_modules import gate_groups, gates_of, put_gates_, take_out_
from vbdrop.methods.shared.losses import cross_entropy, negative_elbo
from vbdrop.methods.shared.run_parts import started, starts_next
from vbdrop.train.method import Batch, Family, Method, Step


class LogNormalGate(nn.Module):
    """Multiplies each unit by truncated log-normal noise; in eval mode by its mean, or by zero if dead.

    Args:
        units: The number of units.
        axis: Their axis, counted from the end; the noise is shared over the following axes.

    Example:
        >>> gate = LogNormalGate(3, -1).eval()
        >>> gate(torch.ones(1, 3))  # not active yet
        tensor([[1., 1., 1.]])
    """

    active: Tensor

    def __init__(self, units: int, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.mu = nn.Parameter(torch.zeros(units))
        self.log_sigma = nn.Parameter(torch.full((units,), -5.0))
        self.register_buffer("active", torch.tensor(False))

    def kl(self) -> Tensor:
        """The KL of all units from their prior."""
        return truncated_log_normal.kl(self.mu, self.log_sigma).sum()

    @torch.no_grad()
    def values(self) -> Tensor:
        """The gate's factors in eval mode."""
        if not self.active:
            return torch.ones_like(self.mu)
        alive = truncated_log_normal.signal_to_noise(self.mu, self.log_sigma) > 1
        return truncated_log_normal.mean(self.mu, self.log_sigma).to(self.mu.dtype).masked_fill(~alive, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """The gated features."""
        if not self.active:
            return x
        if self.training:
            uniform = torch.rand(x.shape[: x.dim() + self.axis + 1], device=x.device)
            factor = truncated_log_normal.sample(self.mu, self.log_sigma, uniform)
        else:
            factor = self.values()
        return x * factor.to(x.dtype).view(*factor.shape, *[1] * (-self.axis - 1))


@dataclass(frozen=True)
class StructuredBayesianPruning(Method):
    """Truncated log-normal gates on the units of a trained network.

    Attributes:
        kl_weight: The factor on the KL; larger values leave fewer units.
        pretrain: The share of the run before the gates are active.
        gate_lr: The learning rate of the gates, as a factor on that of the weights.

    Example:
        >>> StructuredBayesianPruning().build(nn.Linear(4, 2)).gate.mu.shape
        torch.Size([4])
    """

    name: ClassVar[str] = "sbp"
    title: ClassVar[str] = "SBP"
    paper: ClassVar[str] = "Neklyudov et al. 2017, NIPS"
    family: ClassVar[Family] = "structured"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"kl_weight": (1.0, 3.0, 6.0, 10.0, 20.0, 30.0)}

    kl_weight: float = 10.0
    pretrain: float = 0.2
    gate_lr: float = 1.0

    def __post_init__(self) -> None:
        check_not_negative(self, "kl_weight")
        check_share(self, "pretrain")
        check_positive(self, "gate_lr")

    def build(self, model: nn.Module) -> nn.Module:
        """Put a gate on every unit."""
        put_gates_(model, lambda units, axis, inputs: LogNormalGate(units, axis))
        return model

    def groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """Put the gates into their own group."""
        return gate_groups(model, lr=lr, gate_lr=self.gate_lr * lr)

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy and, after the pretraining, the KL over the number of examples."""
        loss = cross_entropy(model, batch)
        if started(self.pretrain, step):
            kl = torch.stack([gate.kl() for _, _, gate in gates_of(model) if isinstance(gate, LogNormalGate)]).sum()
            loss = negative_elbo(loss, kl, step.n_train, self.kl_weight).to(loss.dtype)
        return loss

    @torch.no_grad()
    def after_step(self, model: nn.Module, step: Step) -> None:
        """Switch the gates on when the pretraining ends."""
        if starts_next(self.pretrain, step):
            for _, _, gate in gates_of(model):
                gate.get_buffer("active").fill_(True)

    def finish(self, model: nn.Module) -> nn.Module:
        """The network with the gates folded into its weights, in place."""
        return take_out_(model, lambda gate: gate.values() if isinstance(gate, LogNormalGate) else None)
