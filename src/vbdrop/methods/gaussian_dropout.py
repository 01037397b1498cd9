r"""Gaussian dropout by local reparameterization (Wang and Manning, ICML 2013; Kingma et al. 2015).

The outputs of each layer are sampled instead of its inputs (Eq. 3-5 of Liu et al. 2019):

.. math:: B_{md} \sim N\big(\textstyle\sum_k A_{mk}\theta_{kd},\; \alpha\sum_k A_{mk}^2\theta_{kd}^2\big),
    \qquad \alpha = p/(1-p),

with separate noise for every example m and output d; A is the input, :math:`\theta` the ``weight``. The rate p is
fixed, and there is no penalty. At test time the mean is used.

Published: Liu et al.: Table 1, 3 x 340, 1.64 %.

Deviations: Wang and Manning's fast dropout also has deterministic and sigma-point forms; this is the one that samples
the pre-activations. It is `vbdrop.Rates` with the rates frozen. p = 0.2 at the inputs, as for Bernoulli dropout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from vbdrop.convert import deterministic_
from vbdrop.layers import NoisyLayer
from vbdrop.methods.shared.checks import check_share
from vbdrop.methods.shared.learned_rates import convert_rates_
from vbdrop.methods.shared.losses import cross_entropy
from vbdrop.train.method import Batch, Family, Method, Step


@dataclass(frozen=True)
class GaussianDropout(Method):
    """Fixed-rate Gaussian noise on the outputs of each layer.

    Attributes:
        rate: The dropout rate p of every layer but the first.
        input_rate: The dropout rate of the first layer.

    Example:
        >>> model = GaussianDropout().build(nn.Linear(4, 2))
        >>> model.log_alpha.requires_grad
        False
    """

    name: ClassVar[str] = "gaussian-dropout"
    title: ClassVar[str] = "Gaussian dropout"
    paper: ClassVar[str] = "Wang and Manning 2013, ICML"
    family: ClassVar[Family] = "regulariser"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"rate": (0.1, 0.2, 0.3, 0.5), "input_rate": (0.05, 0.2)}

    rate: float = 0.5
    input_rate: float = 0.2

    def __post_init__(self) -> None:
        check_share(self, "rate", "input_rate")

    def build(self, model: nn.Module) -> nn.Module:
        """Convert every layer with one rate per layer, and freeze the rates."""
        convert_rates_(model, per="layer", prior="log_uniform", rate=self.rate, input_rate=self.input_rate)
        for layer in model.modules():
            if isinstance(layer, NoisyLayer):
                layer.log_alpha.requires_grad_(False)
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The mean cross-entropy under one draw of the outputs."""
        return cross_entropy(model, batch)

    def finish(self, model: nn.Module) -> nn.Module:
        """The network without its noise, in place."""
        return deterministic_(model)
