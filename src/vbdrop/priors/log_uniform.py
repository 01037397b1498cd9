r"""The log-uniform prior of variational dropout, :math:`p(|w|) \propto 1/|w|` (Eq. 8), by its two usual approximations.

The exact divergence is :math:`-\tfrac12\log\alpha + E_{\epsilon\sim N(1,\alpha)}\log|\epsilon| + C`. It has no closed
form, and the prior is improper, so C is chosen by convention.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from vbdrop.priors.base import SMALLEST_SQUARE, Prior, log_alpha_of

K1, K2, K3 = 0.63576, 1.87320, 1.48695
"""The constants of Molchanov, Ashukha and Vetrov (2017)."""

C1, C2, C3 = 1.161451241083230, -1.502041176441722, 0.586299206427007
"""The constants of Kingma, Salimans and Welling (2015)."""


def _by_theta(theta: Tensor, slope: Tensor) -> Tensor:
    """The theta derivative of a function of log_alpha with this ``slope``; d log_alpha / d theta = -2 / theta."""
    return -2 * slope * theta / theta.square().clamp_min(SMALLEST_SQUARE)


@dataclass(frozen=True)
class LogUniform(Prior):
    r"""Molchanov's approximation, valid for every alpha.

    .. math:: \tfrac12\log(1 + \alpha^{-1}) + k_1\,(1 - S(k_2 + k_3\log\alpha))

    The constant is chosen so that the penalty goes to zero as alpha grows. The approximation is within 0.01 of the
    exact value for ``log_alpha`` in [-10, 10].

    Example:
        >>> round(float(LogUniform().kl_at(torch.tensor(0.0))), 3)
        0.431
    """

    scale_free: ClassVar[bool] = True

    def kl(self, theta: Tensor, log_sigma2: Tensor) -> Tensor:
        """VBD's term plus the sigmoid term."""
        hierarchical = 0.5 * torch.log1p(theta.square() * torch.exp(-log_sigma2))
        return hierarchical + K1 * torch.sigmoid(-K2 - K3 * log_alpha_of(theta, log_sigma2))

    def kl_at(self, log_alpha: Tensor) -> Tensor:
        """The same, as half of the softplus of minus ``log_alpha``, plus the sigmoid term."""
        return 0.5 * softplus(-log_alpha) + K1 * torch.sigmoid(-K2 - K3 * log_alpha)

    def kl_gradients(self, theta: Tensor, log_sigma2: Tensor, sigma2: Tensor) -> tuple[Tensor, Tensor]:
        """VBD's rational gradients plus those of the sigmoid term."""
        sigmoid = torch.sigmoid(-K2 - K3 * log_alpha_of(theta, log_sigma2))  # small where the rest is small too
        slope = -K1 * K3 * sigmoid * (1 - sigmoid)
        rational = theta / (theta.square() + sigma2)
        return rational + _by_theta(theta, slope), slope - 0.5 * theta * rational


@dataclass(frozen=True)
class LogUniformCubic(Prior):
    r"""Kingma's cubic approximation, valid for alpha up to 1 (a dropout rate of one half).

    .. math:: -\tfrac12\log\alpha - c_1(\alpha - 1) - c_2(\alpha^2 - 1) - c_3(\alpha^3 - 1)

    The constant is chosen so that the penalty is zero at alpha = 1. A larger alpha counts as 1.

    Example:
        >>> abs(float(LogUniformCubic().kl_at(torch.tensor(0.0)))) < 1e-6
        True
    """

    scale_free: ClassVar[bool] = True
    max_log_alpha: ClassVar[float | None] = 0.0

    def kl(self, theta: Tensor, log_sigma2: Tensor) -> Tensor:
        """The cubic polynomial in alpha, and half of log alpha."""
        log_alpha = log_alpha_of(theta, log_sigma2).clamp_max(0.0)
        alpha = log_alpha.exp()
        polynomial = alpha * (C1 + alpha * (C2 + alpha * C3))
        return (C1 + C2 + C3) - polynomial - 0.5 * log_alpha

    def kl_gradients(self, theta: Tensor, log_sigma2: Tensor, sigma2: Tensor) -> tuple[Tensor, Tensor]:
        """The derivative of the polynomial with respect to log alpha; zero above alpha = 1."""
        log_alpha = log_alpha_of(theta, log_sigma2)
        alpha = log_alpha.clamp_max(0.0).exp()
        slope = -0.5 - alpha * (C1 + alpha * (2 * C2 + alpha * 3 * C3))
        slope = slope.masked_fill(log_alpha > 0, 0.0)
        return _by_theta(theta, slope), slope
