r"""Dropout with multiplicative Gaussian noise (Srivastava et al., JMLR 2014, section 10).

The inputs of each layer are multiplied by :math:`\xi \sim N(1, \alpha)`, :math:`\alpha = p/(1-p)`, drawn per example
and value (Eq. 2 of Liu et al. 2019): the mean and variance of Bernoulli dropout at rate p. There is no noise at test
time.

Published: Srivastava, Table 10, MNIST, 2 x 1024 units: 0.95 % against 1.08 % for Bernoulli (from memory, not
checked). Liu et al.: Table 1, 3 x 340, 1.66 %; Table 2, scale 1, 46.52 %; Table 3, 20.22 %.

Deviations: those of Bernoulli dropout (no max-norm, the protocol's Adam, p = 0.2 at the inputs).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from vbdrop.functional import standard_normal_like
from vbdrop.methods.shared.checks import check_share
from vbdrop.methods.shared.input_modules import put_before_, take_out_
from vbdrop.methods.shared.losses import cross_entropy
from vbdrop.train.method import Batch, Family, Method, Step


class MultiplicativeNoise(nn.Module):
    r"""Multiplies every value by its own :math:`\xi \sim N(1, \alpha)` in training.

    Args:
        rate: The dropout rate p; :math:`\alpha = p/(1-p)`.

    Example:
        >>> MultiplicativeNoise(0.5).alpha
        1.0
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.alpha = rate / (1 - rate)

    def forward(self, x: Tensor) -> Tensor:
        """The noisy values."""
        if not self.training:
            return x
        return x * standard_normal_like(x).mul_(math.sqrt(self.alpha)).add_(1.0)


@dataclass(frozen=True)
class GaussianNoise(Method):
    """Fixed-rate Gaussian noise on the inputs of each layer.

    Attributes:
        rate: The dropout rate p of the inputs of every layer but the first.
        input_rate: The dropout rate of the network's inputs.

    Example:
        >>> model = GaussianNoise(rate=0.5).build(nn.Linear(4, 2))
        >>> round(model.gate.alpha, 6)  # the network's inputs: 0.2 / 0.8
        0.25
    """

    name: ClassVar[str] = "gaussian-noise"
    title: ClassVar[str] = "Dropout, Gaussian"
    paper: ClassVar[str] = "Srivastava et al. 2014, JMLR"
    family: ClassVar[Family] = "regulariser"
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {"rate": (0.1, 0.2, 0.3, 0.5), "input_rate": (0.0, 0.2)}

    rate: float = 0.5
    input_rate: float = 0.2

    def __post_init__(self) -> None:
        check_share(self, "rate", "input_rate", zero=True)

    def build(self, model: nn.Module) -> nn.Module:
        """Put the noise before every layer."""
        put_before_(model, lambda layer, first: MultiplicativeNoise(self.input_rate if first else self.rate))
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The mean cross-entropy under one draw of the noise."""
        return cross_entropy(model, batch)

    def finish(self, model: nn.Module) -> nn.Module:
        """The network without its noise, in place."""
        return take_out_(model, lambda gate: None)
