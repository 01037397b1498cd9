r"""Activations of a normal input: the ReLU and bounded linear functions in closed form, others by quadrature.

For :math:`x \sim N(\mu, \sigma^2)` with :math:`a = \mu/\sigma` (Frey and Hinton 1999),

.. math:: E\,x^+ = \mu\Phi(a) + \sigma\varphi(a), \qquad
    E\,(x^+)^2 = (\mu^2 + \sigma^2)\Phi(a) + \mu\sigma\varphi(a).
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vbdrop.moments.gaussian import Moments, NoRuleError

NODES = 32
"""The nodes of the quadrature, which is exact for polynomials of degree 63."""

HIGHEST = 30.0
"""At this many standard deviations from a kink, x is treated as always being on one side of it."""


def normal_density(a: Tensor) -> Tensor:
    """The density of a standard normal number.

    Example:
        >>> round(normal_density(torch.tensor(0.0)).item(), 4)
        0.3989
    """
    return torch.exp(-0.5 * a.square()) / math.sqrt(2 * math.pi)


def standardised(gap: Tensor, deviation: Tensor) -> Tensor:
    """A difference in units of the standard deviation, clamped to `HIGHEST` on either side; defined even without noise.

    Example:
        >>> standardised(torch.tensor([3.0, -3.0, 0.0]), torch.tensor([2.0, 0.0, 0.0]))
        tensor([  1.5000, -30.0000,   0.0000])
    """
    return (gap / deviation.clamp_min(torch.finfo(gap.dtype).tiny)).clamp(-HIGHEST, HIGHEST)


def rectified(x: Moments) -> Moments:
    """The moments of ``max(x, 0)``, exact for a normal x.

    Example:
        >>> y = rectified(Moments(torch.tensor([0.0]), torch.tensor([1.0])))
        >>> y.mean_.round(decimals=4), y.variance.round(decimals=4)
        (tensor([0.3989]), tensor([0.3408]))
    """
    mean, deviation = x.mean_, x.variance.sqrt()
    a = standardised(mean, deviation)
    below, density = torch.special.ndtr(a), normal_density(a)
    first = mean * below + deviation * density
    # the variance around the mean, E (x+)^2 - (E x+)^2, written without the difference of two large numbers
    variance = x.variance * below + (mean - first) * first
    return Moments(first, variance.clamp_min(0.0))


def leaky(x: Moments, negative_slope: float = 0.01) -> Moments:
    """The moments of the leaky ReLU, ``(1 - s) max(x, 0) + s x``.

    Example:
        >>> leaky(Moments(torch.tensor([-5.0]), torch.tensor([0.0])), 0.1).mean_
        tensor([-0.5000])
    """
    positive, negative = rectified(x), rectified(-x)
    mean = positive.mean_ - negative_slope * negative.mean_
    # max(x, 0) max(-x, 0) = 0, so their covariance is minus the product of their means
    variance = positive.variance + negative_slope**2 * negative.variance
    covariance = -positive.mean_ * negative.mean_
    return Moments(mean, (variance - 2 * negative_slope * covariance).clamp_min(0.0))


def clipped(x: Moments, min_val: float = -1.0, max_val: float = 1.0) -> Moments:
    r"""The moments of ``min(max(x, min_val), max_val)``, exact for a normal x.

    With the bounds :math:`l` and :math:`h`, :math:`\alpha = (l - \mu)/\sigma` and :math:`\beta = (h - \mu)/\sigma`,
    the mean is :math:`m = l\Phi(\alpha) + h\Phi(-\beta) + \mu P + \sigma(\varphi(\alpha) - \varphi(\beta))`
    with :math:`P = \Phi(\beta) - \Phi(\alpha)`; the variance sums the squares around it in the same three parts.

    Example:
        >>> y = clipped(Moments(torch.tensor([0.0]), torch.tensor([1.0])))
        >>> y.mean_, y.variance.round(decimals=4)
        (tensor([0.]), tensor([0.5161]))
    """
    if not (math.isfinite(min_val) and math.isfinite(max_val)):
        raise NoRuleError("hardtanh with an infinite bound")
    mean, deviation = x.mean_, x.variance.sqrt()
    low, high = standardised(min_val - mean, deviation), standardised(max_val - mean, deviation)
    below, above = torch.special.ndtr(low), torch.special.ndtr(-high)
    inside = torch.special.ndtr(high) - below
    step = normal_density(low) - normal_density(high)
    found = min_val * below + max_val * above + mean * inside + deviation * step
    gap = mean - found
    curve = low * normal_density(low) - high * normal_density(high)
    within = gap.square() * inside + 2 * gap * deviation * step + x.variance * (inside + curve)
    within = torch.minimum(within.clamp_min(0.0), (max_val - min_val) ** 2 * inside)  # else off for large deviations
    return Moments(found, (min_val - found).square() * below + (max_val - found).square() * above + within)


@cache
def _nodes() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights of the expectation under a standard normal (Gauss-Hermite)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return tuple(nodes.tolist()), tuple((weights / weights.sum()).tolist())


def quadrature(function: Callable[..., Tensor]) -> Callable[..., Moments]:
    """The rule of a pointwise function, by Gauss-Hermite quadrature with 32 nodes.

    It is approximate if the standard deviation is large compared with the scale on which the function bends: for a mean
    of 2 and a standard deviation of 10, the mean of tanh comes out as 0.077 instead of 0.158.

    Args:
        function: Maps a tensor, and further arguments, to a tensor of the same shape.

    Example:
        >>> y = quadrature(torch.square)(Moments(torch.tensor([1.0]), torch.tensor([2.0])))
        >>> y.mean_.round(decimals=3), y.variance.round(decimals=3)
        (tensor([3.]), tensor([16.]))
    """

    def rule(x: Moments, *args: Any, **kwargs: Any) -> Moments:  # noqa: ANN401 -- those of the function
        deviation = x.variance.sqrt()
        nodes, weights = _nodes()
        values = [function(x.mean_ + node * deviation, *args, **kwargs) for node in nodes]
        mean = sum((w * v for w, v in zip(weights, values, strict=True)), torch.zeros_like(x.mean_))
        squares = ((w * (v - mean).square()) for w, v in zip(weights, values, strict=True))
        return Moments(mean, sum(squares, torch.zeros_like(mean)))

    return rule
