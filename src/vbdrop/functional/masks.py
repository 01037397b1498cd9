"""Which weights are dead: those whose dropout rate says that they carry noise only."""

import math

import torch
from torch import Tensor


def alive(theta: Tensor, log_sigma2: Tensor, threshold: float) -> Tensor:
    """Whether ``log_alpha < threshold``, decided without a logarithm: ``sigma2 < exp(threshold) * theta**2``.

    Args:
        theta: Means of the weights.
        log_sigma2: Log variances of the weights, of the same shape.
        threshold: The ``log_alpha`` from which on a weight counts as dead.

    Returns:
        A boolean tensor; a mean of exactly zero is dead.

    Example:
        >>> alive(torch.tensor([1.0, 0.1, 0.0]), torch.zeros(3), threshold=3.0)
        tensor([ True, False, False])
    """
    square = theta.to(log_sigma2.dtype).square()
    return log_sigma2.exp() < square * math.exp(threshold)


def masked(theta: Tensor, keep: Tensor) -> Tensor:
    """``theta`` where ``keep``, exact zeros elsewhere; the gradient reaches what is kept.

    Example:
        >>> masked(torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
        tensor([1., 0.])
    """
    return torch.where(keep, theta, torch.zeros((), dtype=theta.dtype, device=theta.device))
