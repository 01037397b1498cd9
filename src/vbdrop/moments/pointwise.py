r"""Activations of a normal input: the ReLU in closed form, any smooth function by quadrature.

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

from vbdrop.moments.gaussian import Moments

NODES = 32
"""The nodes of the quadrature: exact for polynomials of degree 63."""


def normal_density(a: Tensor) -> Tensor:
    """The density of a standard normal number.

    Example:
        >>> round(normal_density(torch.tensor(0.0)).item(), 4)
        0.3989
    """
    return torch.exp(-0.5 * a.square()) / math.sqrt(2 * math.pi)


def rectified(x: Moments) -> Moments:
    """The moments of ``max(x, 0)``, exact for a normal x.

    Example:
        >>> y = rectified(Moments(torch.tensor([0.0]), torch.tensor([1.0])))
        >>> y.mean_.round(decimals=4), y.variance.round(decimals=4)
        (tensor([0.3989]), tensor([0.3408]))
    """
    mean, deviation = x.mean_, x.variance.sqrt()
    a = mean / deviation.clamp_min(torch.finfo(mean.dtype).tiny)
    a = a.clamp(-30.0, 30.0)  # beyond this, x has one sign
    below, density = torch.special.ndtr(a), normal_density(a)
    first = mean * below + deviation * density
    # the variance around the mean, E (x+)^2 - (E x+)^2, written without the difference of two large numbers
    variance = x.variance * below + (mean - first) * first
    return Moments(first, variance.clamp_min(0.0))


def leaky(x: Moments, negative_slope: float = 0.01, inplace: bool = False) -> Moments:
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


@cache
def _nodes() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights of the expectation under a standard normal (Gauss-Hermite)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return tuple(nodes.tolist()), tuple((weights / weights.sum()).tolist())


def quadrature(function: Callable[..., Tensor]) -> Callable[..., Moments]:
    """The rule of a pointwise function, by Gauss-Hermite quadrature; exact for a normal x up to the function's kinks.

    Args:
        function: Maps a tensor, and further arguments, to a tensor of the same shape.

    Example:
        >>> y = quadrature(torch.square)(Moments(torch.tensor([1.0]), torch.tensor([2.0])))
        >>> y.mean_.round(decimals=3), y.variance.round(decimals=3)
        (tensor([3.]), tensor([16.]))
    """

    def rule(x: Moments, *args: Any, **kwargs: Any) -> Moments:  # noqa: ANN401 -- those of the function
        kwargs.pop("inplace", None)
        deviation = x.variance.sqrt()
        nodes, weights = _nodes()
        values = [function(x.mean_ + node * deviation, *args, **kwargs) for node in nodes]
        mean = sum((w * v for w, v in zip(weights, values, strict=True)), torch.zeros_like(x.mean_))
        squares = ((w * (v - mean).square()) for w, v in zip(weights, values, strict=True))
        return Moments(mean, sum(squares, torch.zeros_like(mean)))

    return rule
