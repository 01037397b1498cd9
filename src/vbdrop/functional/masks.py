"""Which weights are dead: those whose dropout rate shows that they carry only noise."""

import math

import torch
from torch import Tensor

LARGEST_THRESHOLD = 88.0
"""Upper limit for thresholds: its exponential still fits into float32."""


def largest_alpha(threshold: float | None) -> float:
    """The alpha at this ``log_alpha``, limited to what float32 can represent; infinity for None.

    Example:
        >>> largest_alpha(0.0)
        1.0
    """
    return math.inf if threshold is None else math.exp(min(threshold, LARGEST_THRESHOLD))


def alive_given(theta: Tensor, sigma2: Tensor, threshold: float) -> Tensor:
    """Whether ``log_alpha < threshold``, as a boolean tensor.

    It is computed without a logarithm, as ``sigma2 < exp(threshold) * theta**2``. A mean of exactly zero is dead. NaN
    counts as alive, so that the outputs show it.

    Args:
        theta: Means of the weights.
        sigma2: Variances of the weights, of the same shape.
        threshold: The ``log_alpha`` at or above which a weight is dead.

    Returns:
        True where a weight is alive.

    Example:
        >>> alive_given(torch.tensor([1.0, 0.1, 0.0]), torch.ones(3), threshold=3.0)
        tensor([ True, False, False])
    """
    theta = theta.detach().to(sigma2.dtype)
    excess = torch.addcmul(sigma2.detach(), theta, theta, value=-largest_alpha(threshold))
    return excess.ge(0).logical_not_()


def alive(theta: Tensor, log_sigma2: Tensor, threshold: float) -> Tensor:
    """`alive_given` the log variances.

    Example:
        >>> alive(torch.tensor([1.0, 0.1, 0.0]), torch.zeros(3), threshold=3.0)
        tensor([ True, False, False])
    """
    return alive_given(theta, log_sigma2.exp(), threshold)


def masked(theta: Tensor, keep: Tensor) -> Tensor:
    """``theta`` where ``keep`` is true, exact zeros elsewhere; only kept weights get a gradient.

    Example:
        >>> masked(torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
        tensor([1., 0.])
    """
    return torch.where(keep, theta, torch.zeros((), dtype=theta.dtype, device=theta.device))
