r"""Variational Bayesian dropout as a regulariser (Liu et al., CVPR 2019): learned rates under the hierarchical prior.

Gaussian dropout by local reparameterization (Eq. 3), :math:`q(w) = N(\theta, \alpha\theta^2)` (Eq. 4), and the
objective of Eq. 17: the mean cross-entropy plus ``kl_weight`` over the number of examples times :math:`\sum_{kd}
\tfrac12\log(1 + \alpha^{-1})`, summed over all weights, even if they share one alpha.

Published: Table 1, MNIST, 3 x 100 to 3 x 1060 units: 1.56, 1.53, 1.53, 1.52, 1.45 %; Table 2, CIFAR-10, scale 1, 1.5,
2: 39.50, 38.88, 38.52 %; Table 3, SVHN, 17.46 %.

Deviations: what shares an alpha, the weight of the KL and the initial rates are not published. The default is one alpha
per weight and a tenth of the KL: with the full sum over the weights and one alpha per layer or unit the network
underfits (alpha 10 to 30), so the weight is chosen on validation data. Nothing is masked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from vbdrop.convert import deterministic_, param_groups
from vbdrop.methods.shared.checks import check_choice, check_not_negative, check_share
from vbdrop.methods.shared.learned_rates import GRID, convert_rates_
from vbdrop.methods.shared.losses import cross_entropy, variational_loss
from vbdrop.train.method import Batch, Family, Method, Step


@dataclass(frozen=True)
class VBDRates(Method):
    """Gaussian dropout with learned rates under the hierarchical prior.

    Attributes:
        per: What has one alpha: every ``"weight"``, every input ``"unit"``, or the ``"layer"``.
        kl_weight: The factor on the KL.
        rate: The initial dropout rate.
        input_rate: The same for the first layer.

    Example:
        >>> VBDRates(per="unit").build(nn.Linear(4, 2)).log_alpha.shape
        torch.Size([4])
    """

    name: ClassVar[str] = "vbd-rates"
    title: ClassVar[str] = "VBD"
    paper: ClassVar[str] = "Liu et al. 2019, CVPR"
    family: ClassVar[Family] = "regulariser"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = GRID

    per: Literal["weight", "unit", "layer"] = "weight"
    kl_weight: float = 0.1
    rate: float = 0.1
    input_rate: float = 0.1

    def __post_init__(self) -> None:
        check_choice(self, "per", ("weight", "unit", "layer"))
        check_not_negative(self, "kl_weight")
        check_share(self, "rate", "input_rate")

    def build(self, model: nn.Module) -> nn.Module:
        """Convert every layer with `vbdrop.Rates`."""
        convert_rates_(model, per=self.per, prior="hierarchical", rate=self.rate, input_rate=self.input_rate)
        return model

    def groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """Put the rates into their own group, without weight decay."""
        return param_groups(model, lr=lr, weight_decay=0.0)

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy under one draw of the noise, and the KL over the number of examples."""
        return variational_loss(model, cross_entropy(model, batch), step, weight=self.kl_weight)

    def finish(self, model: nn.Module) -> nn.Module:
        """The network without its noise, in place."""
        return deterministic_(model)
