r"""Variational dropout (Kingma, Salimans and Welling, NIPS 2015): Gaussian dropout that learns its rates.

The loss is the mean cross-entropy plus ``kl_weight`` times the KL over the number of examples, where :math:`q(w) =
N(\theta, \alpha\theta^2)` and the prior is log-uniform (Eq. 6-8 of Liu et al. 2019).

* Type **B** (independent weight noise): local reparameterization,
  :math:`B_{md} \sim N(\sum_k A_{mk}\theta_{kd}, \sum_k \alpha A_{mk}^2\theta_{kd}^2)`; the KL is summed over all
  weights.
* Type **A** (correlated weight noise): :math:`B = (A \circ \xi)\theta` with :math:`\xi_{mk} \sim N(1, \alpha_k)`; the
  noisy quantity is one scale per input unit, and the KL is summed over the units.

There are two approximations of the KL, both up to a constant: Kingma's cubic, valid for :math:`\alpha \le 1`,

.. math:: -\tfrac12\log\alpha - c_1\alpha - c_2\alpha^2 - c_3\alpha^3,

and Molchanov's sigmoid, valid for every alpha, :math:`\tfrac12\log(1+\alpha^{-1}) + k_1(1 - S(k_2 + k_3\log\alpha))`.
Kingma's variant A2 is type A with ``kl_weight=1/3``.

Published: Liu et al.: Table 1, 3 x 340, 1.62 %; Table 2, scale 1, 44.12 %; Table 3, 19.74 %; type, sharing and
approximation are not stated.

Deviations: the defaults are type B, cubic, one alpha per layer; no early stopping on validation data. Alpha is a
clamped ``exp(log_alpha)`` that keeps the gradient pointing back inside at the bound, not a sigmoid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vbdrop.convert import deterministic_, param_groups
from vbdrop.functional import standard_normal_like, upper_bounded
from vbdrop.layers import NoisyLayer
from vbdrop.methods.shared.checks import check_choice, check_not_negative, check_share
from vbdrop.methods.shared.input_modules import gates_of, put_before_, take_out_
from vbdrop.methods.shared.learned_rates import convert_rates_
from vbdrop.methods.shared.losses import cross_entropy, negative_elbo, variational_loss
from vbdrop.priors import Prior, as_prior
from vbdrop.train.method import Batch, Family, Method, Step

PRIORS = {"cubic": "log_uniform_cubic", "sigmoid": "log_uniform"}
"""Name of the approximation -> name of the prior."""


class InputNoise(nn.Module):
    r"""Type A: multiplies the inputs by :math:`\xi \sim N(1, \alpha)` with one learned alpha per unit or layer.

    Args:
        units: The number of input units or channels.
        axis: Their axis, counted from the end.
        shared: Whether they share one alpha.
        rate: The initial dropout rate p.
        prior: The log-uniform prior, in one of its approximations.

    Example:
        >>> noise = InputNoise(4, -1, shared=False, rate=0.5, prior=as_prior("log_uniform_cubic"))
        >>> abs(round(noise.kl().item(), 5))  # the cubic's constant makes it zero at alpha = 1
        0.0
    """

    def __init__(self, units: int, axis: int, *, shared: bool, rate: float, prior: Prior) -> None:
        super().__init__()
        self.units = units
        self.axis = axis
        self.prior = prior
        start = torch.logit(torch.tensor(rate))
        self.log_alpha = nn.Parameter(start if shared else start.repeat(units))

    def kl(self) -> Tensor:
        """The KL of the scales from their prior: a sum over the units, even if they share one alpha."""
        return self.prior.kl_at(self.log_alpha).sum() * (self.units / self.log_alpha.numel())

    def forward(self, x: Tensor) -> Tensor:
        """The noisy values."""
        if not self.training:
            return x
        deviation = torch.exp(0.5 * upper_bounded(self.log_alpha, self.prior.max_log_alpha))
        if deviation.dim() == 1:
            deviation = deviation.view(-1, *[1] * (-self.axis - 1))
        return x * (1 + deviation * standard_normal_like(x))


@dataclass(frozen=True)
class VariationalDropout(Method):
    """Gaussian dropout with learned rates under the log-uniform prior.

    Attributes:
        noise: ``"b"`` for noise on the weights by local reparameterization, ``"a"`` for noise on the inputs.
        approximation: That of the KL: ``"cubic"`` (alpha at most 1) or ``"sigmoid"`` (any alpha).
        per: What has one alpha: the ``"layer"``, every input ``"unit"``, or (type B only) every ``"weight"``.
        kl_weight: The factor on the KL.
        rate: The initial dropout rate.
        input_rate: The same for the first layer.

    Example:
        >>> model = VariationalDropout(noise="a", per="unit").build(nn.Linear(4, 2))
        >>> model.gate.log_alpha.shape
        torch.Size([4])
    """

    name: ClassVar[str] = "variational-dropout"
    title: ClassVar[str] = "VD"
    paper: ClassVar[str] = "Kingma et al. 2015, NIPS"
    family: ClassVar[Family] = "regulariser"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "kl_weight": (0.1, 0.3, 1.0, 3.0),
        "rate": (0.2, 0.5),
    }

    noise: Literal["a", "b"] = "b"
    approximation: Literal["cubic", "sigmoid"] = "cubic"
    per: Literal["layer", "unit", "weight"] = "layer"
    kl_weight: float = 1.0
    rate: float = 0.5
    input_rate: float = 0.2

    def __post_init__(self) -> None:
        check_choice(self, "noise", ("a", "b"))
        check_choice(self, "approximation", tuple(PRIORS))
        check_choice(self, "per", ("layer", "unit", "weight") if self.noise == "b" else ("layer", "unit"))
        check_not_negative(self, "kl_weight")
        check_share(self, "rate", "input_rate")

    def build(self, model: nn.Module) -> nn.Module:
        """Convert the weights (type B), or put learned noise before every layer (type A)."""
        prior = PRIORS[self.approximation]
        if self.noise == "b":
            convert_rates_(model, per=self.per, prior=prior, rate=self.rate, input_rate=self.input_rate)
            return model

        def noise(layer: NoisyLayer, first: bool) -> nn.Module:
            rate = self.input_rate if first else self.rate
            return InputNoise(
                layer.n_inputs, layer.unit_axis, shared=self.per == "layer", rate=rate, prior=as_prior(prior)
            )

        put_before_(model, noise)
        return model

    def groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """Put the rates into their own group, without weight decay (type B)."""
        return param_groups(model, lr=lr, weight_decay=0.0) if self.noise == "b" else super().groups(model, lr)

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy under one draw of the noise, and the KL over the number of examples."""
        if self.noise == "b":
            return variational_loss(model, cross_entropy(model, batch), step, weight=self.kl_weight)
        kl = torch.stack([gate.kl() for _, _, gate in gates_of(model) if isinstance(gate, InputNoise)]).sum()
        return negative_elbo(cross_entropy(model, batch), kl, step.n_train, self.kl_weight)

    def finish(self, model: nn.Module) -> nn.Module:
        """The network without its noise, in place."""
        return deterministic_(model) if self.noise == "b" else take_out_(model, lambda gate: None)
