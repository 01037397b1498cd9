r"""A two-level prior with an inverse-gamma hyper-prior on the variance: a Student t over each weight.

With :math:`p(\gamma) \propto \gamma^{-a-1} e^{-b/\gamma}` the terms of the objective that contain gamma are

.. math:: (a + \tfrac32)\log\gamma + \frac{m + 2b}{2\gamma}, \qquad m = \theta^2 + \sigma^2,

and setting the derivative to zero gives :math:`\gamma^* = (m + 2b)/(2a + 3)`. With :math:`a = -1` and :math:`b = 0`
the density is uniform and :math:`\gamma^* = m`, which is the paper's prior. A proper density (:math:`a, b > 0`) is not
scale-free: at a fixed alpha, weights far larger or far smaller than :math:`\sqrt{2b}` cost more.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from vbdrop.priors.two_level import TwoLevelPrior


@dataclass(frozen=True)
class InverseGamma(TwoLevelPrior):
    """The prior N(0, gamma) with gamma ~ InverseGamma(shape, scale).

    Attributes:
        shape: The density's a, above 0. Larger values keep gamma closer to its mode.
        scale: The density's b, above 0, in units of a squared weight.

    Example:
        >>> import torch
        >>> prior = InverseGamma(shape=1.0, scale=0.5)
        >>> float(prior.best_gamma(torch.tensor(4.0)))  # (4 + 2 * 0.5) / (2 * 1 + 3)
        1.0
    """

    shape: float = 0.1
    scale: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("shape", "scale"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"`{name}` of InverseGamma must be a finite number above 0; got {value!r}.")

    @property
    def mode(self) -> float:
        """The most likely gamma, b / (a + 1)."""
        return self.scale / (self.shape + 1)

    def best_gamma(self, second_moment: Tensor) -> Tensor:
        r""":math:`\gamma^* = (m + 2b)/(2a + 3)`."""
        return (second_moment + 2 * self.scale) / (2 * self.shape + 3)

    def hyper_penalty(self, gamma: Tensor) -> Tensor:
        r""":math:`-\log p(\gamma) + \log p(\text{mode})`: not negative, and zero at the mode."""
        return (self.shape + 1) * (gamma / self.mode).log() + self.scale / gamma - self.scale / self.mode
