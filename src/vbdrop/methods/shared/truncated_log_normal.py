r"""The truncated log-normal distribution of structured Bayesian pruning, in forms that stay finite.

:math:`\theta = e^z` with z normal with mean ``mu`` and deviation ``exp(log_sigma)``, truncated to [a, b] = [-20, 0].
With :math:`A = (a-\mu)/\sigma`, :math:`B = (b-\mu)/\sigma` and :math:`Z = \Phi(B) - \Phi(A)`,

.. math:: E\theta^k = e^{k\mu + k^2\sigma^2/2}\,\frac{\Phi(B - k\sigma) - \Phi(A - k\sigma)}{Z}.

The factors can over- or underflow even if their product does not. If b cuts off the mass, :math:`B < 0`, everything is
divided by the density :math:`\phi(B)`, which leaves scaled complementary error functions, ``erfcx``; otherwise the
logarithm of :math:`\Phi` is used. The functions convert their arguments to float64 and bound them by `MU_LIMITS` and
`LOG_SIGMA_LIMITS`; within these the relative error of the mean is below 1e-9 and the absolute error of the KL below
1e-5.
"""

import math

import torch
from torch import Tensor

LOW, HIGH = -20.0, 0.0
"""The bounds a and b of the logarithm."""

MU_LIMITS = (-20.0, 5.0)
"""The range of ``mu``."""

LOG_SIGMA_LIMITS = (-10.0, 5.0)
"""The range of ``log_sigma``: at its lower end theta is fixed to four digits."""

EDGE = 1e-5
"""Samples keep this distance from the ends of the cumulative distribution."""


def _standard(mu: Tensor, log_sigma: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean and deviation in float64 and within their limits, and the bounds A and B."""
    mu, sigma = mu.double().clamp(*MU_LIMITS), log_sigma.double().clamp(*LOG_SIGMA_LIMITS).exp()
    return mu, sigma, (LOW - mu) / sigma, (HIGH - mu) / sigma


def _log_difference(low: Tensor, high: Tensor) -> Tensor:
    r""":math:`\log(\Phi(high) - \Phi(low))`, for low < high and low <= 0."""
    top, bottom = torch.special.log_ndtr(high), torch.special.log_ndtr(low)
    difference: Tensor = top + torch.log(-torch.expm1(bottom - top))
    return difference


def _moved_below(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The bounds, moved down together if B > 0: a branch that is not taken must also be finite, for its gradient."""
    cut = high.clamp_max(0.0)
    return low - (high - cut), cut


def _over_density(low: Tensor, high: Tensor, sigma: Tensor, order: int) -> Tensor:
    r""":math:`\sqrt{2/\pi}\,e^{k\mu+k^2\sigma^2/2}(\Phi(B-k\sigma)-\Phi(A-k\sigma))/\phi(B)`, for B <= 0."""
    at_high = torch.special.erfcx((order * sigma - high) * math.sqrt(0.5)) * math.exp(order * HIGH)
    at_low = torch.special.erfcx((order * sigma - low) * math.sqrt(0.5))
    difference: Tensor = at_high - at_low * torch.exp(order * LOW + 0.5 * (high - low) * (high + low))
    return difference


def log_moment(mu: Tensor, log_sigma: Tensor, order: int) -> Tensor:
    r""":math:`\log E\theta^k` for k = ``order``.

    Example:
        >>> narrow = torch.tensor(-9.0)  # nearly all mass at exp(-1)
        >>> round(log_moment(torch.tensor(-1.0), narrow, 1).item(), 6)
        -1.0
    """
    mu, sigma, low, high = _standard(mu, log_sigma)
    bounds = _moved_below(low, high)
    ratio = _over_density(*bounds, sigma, order) / _over_density(*bounds, sigma, 0)
    shift = order * sigma
    inside = _log_difference(low - shift, high - shift) - _log_difference(low, high)
    return torch.where(high < 0, ratio.log(), order * mu + 0.5 * shift.square() + inside)


def mean(mu: Tensor, log_sigma: Tensor) -> Tensor:
    r"""The mean :math:`E\theta`, between 0 and 1.

    Example:
        >>> round(mean(torch.tensor(0.0), torch.tensor(-5.0)).item(), 4)  # 1 - sigma * sqrt(2 / pi)
        0.9946
    """
    return log_moment(mu, log_sigma, 1).exp()


def signal_to_noise(mu: Tensor, log_sigma: Tensor) -> Tensor:
    r""":math:`E\theta / \sqrt{Var\,\theta}`, from the ratio of the moments: :math:`(E\theta^2/(E\theta)^2 - 1)^{-1/2}`.

    Example:
        >>> (signal_to_noise(torch.tensor([0.0, -20.0]), torch.tensor([-5.0, 3.0])) > 1).tolist()
        [True, False]
    """
    ratio = log_moment(mu, log_sigma, 2) - 2 * log_moment(mu, log_sigma, 1)
    return torch.expm1(ratio.clamp_min(torch.finfo(ratio.dtype).eps)).rsqrt()


def kl(mu: Tensor, log_sigma: Tensor) -> Tensor:
    r"""The KL divergence from the log-uniform prior on the same interval, one value per unit.

    .. math:: \log(b - a) - \log\sigma - \tfrac12\log(2\pi e) - \log Z - \frac{A\phi(A) - B\phi(B)}{2Z}

    Example:
        >>> round(kl(torch.tensor(-10.0), torch.tensor(5.0)).item(), 3)  # nearly uniform on the interval
        0.0
    """
    mu, sigma, low, high = _standard(mu, log_sigma)
    # B < 0: with h = phi(B) / Z, the terms of Z and of B are B**2 / 2 + log h + B * h / 2
    start, cut = _moved_below(low, high)
    hazard = math.sqrt(2 / math.pi) / _over_density(start, cut, sigma, 0)
    edge = start * hazard * torch.exp(0.5 * (cut - start) * (cut + start))
    behind = hazard.log() + 0.5 * (cut * (cut + hazard) - edge)
    # B >= 0
    log_z = _log_difference(low, high)
    log_phi_low, log_phi_high = (-0.5 * (x.square() + math.log(2 * math.pi)) for x in (low, high))
    edges = low * torch.exp(log_phi_low - log_z) - high * torch.exp(log_phi_high - log_z)
    within = -0.5 * math.log(2 * math.pi) - log_z - 0.5 * edges
    return math.log(HIGH - LOW) - sigma.log() - 0.5 + torch.where(high < 0, behind, within)


def sample(mu: Tensor, log_sigma: Tensor, uniform: Tensor) -> Tensor:
    r"""Draws of theta by the inverse of the cumulative distribution, :math:`e^{\mu+\sigma\Phi^{-1}(\Phi(A)+uZ)}`.

    Args:
        mu: The means, one per unit.
        log_sigma: The log deviations.
        uniform: Numbers in (0, 1), whose last axis runs over the units; the draws have their dtype.

    Example:
        >>> round(sample(torch.tensor(-10.0), torch.tensor(5.0), torch.tensor(0.5)).log().item(), 2)
        -10.0
    """
    mu, sigma, low, high = _standard(mu, log_sigma)
    below = torch.special.ndtr(low)
    inside = torch.special.ndtr(high) - below
    below, inside, mu, sigma = (value.to(uniform.dtype) for value in (below, inside, mu, sigma))
    quantile = (below + uniform * inside).clamp(EDGE, 1 - EDGE)
    z = mu + math.sqrt(2) * sigma * torch.erfinv(2 * quantile - 1)  # the inverse of Phi; four times faster than `ndtri`
    return z.clamp(LOW, HIGH).exp()
