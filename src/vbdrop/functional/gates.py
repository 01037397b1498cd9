r"""Multiplicative noise on units (Eq. 19): :math:`B' = f(B) \circ W'` with :math:`W' \sim N(\theta, \sigma^2)`."""

import torch
from torch import Tensor

from vbdrop.functional.masks import alive, masked


def gate_noise(x: Tensor, axis: int) -> Tensor:
    """Standard normal numbers, one per sample and unit, shared over the axes after the units' axis.

    Args:
        x: The features.
        axis: The units' axis, counted from the end (-1 for a linear layer, -3 for images).

    Returns:
        Noise that broadcasts against ``x``, in float32 or wider.

    Example:
        >>> gate_noise(torch.zeros(8, 3, 5, 5), axis=-3).shape
        torch.Size([8, 3, 1, 1])
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    leading = x.shape[: x.dim() + axis + 1]
    return torch.randn(*leading, *[1] * (-axis - 1), dtype=dtype, device=x.device)


def check_units(x: Tensor, mean: Tensor, axis: int) -> None:
    """Reject features of another size: a single unit would silently broadcast over all gates."""
    if x.shape[axis] != mean.numel():
        raise ValueError(f"`x` must have {mean.numel()} units on axis {axis}; got the shape {tuple(x.shape)}.")


def apply_gate(x: Tensor, mean: Tensor, deviation: Tensor | None, axis: int, noise: Tensor | None = None) -> Tensor:
    """Multiply each unit by its gate, ``mean + deviation * noise``, or by ``mean`` alone.

    Args:
        x: The features.
        mean: The gates' means, one per unit.
        deviation: Their standard deviations, or None for no noise.
        axis: The units' axis, counted from the end.
        noise: Standard normal numbers, one per sample and unit; drawn here if None.

    Returns:
        The gated features, in the dtype of ``x``.

    Example:
        >>> apply_gate(torch.ones(1, 2), torch.tensor([2.0, 0.0]), None, axis=-1)
        tensor([[2., 0.]])
    """
    check_units(x, mean, axis)
    spread = (-1, *[1] * (-axis - 1))
    gate = mean.view(spread)
    if deviation is not None:
        gate = gate + deviation.view(spread) * (gate_noise(x, axis) if noise is None else noise)
    return x * gate.to(x.dtype)


def noisy_gates_reference(
    x: Tensor,
    mean: Tensor,
    log_sigma2: Tensor,
    axis: int,
    threshold: float | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """Multiply each unit by its gate, drawn from ``N(mean, exp(log_sigma2))`` for each sample and unit.

    Args:
        x: The features.
        mean: The gates' means, one per unit.
        log_sigma2: Their log variances.
        axis: The units' axis, counted from the end.
        threshold: The ``log_alpha`` at or above which a gate's mean counts as zero (its variance stays, and a mean of
            exactly zero keeps its gradient); None for never.
        noise: Standard normal numbers, one per sample and unit; drawn here if None.

    Returns:
        The gated features, in the dtype of ``x``.

    Example:
        >>> mean, noise = torch.tensor([2.0, 0.5]), torch.ones(1, 2)
        >>> noisy_gates_reference(torch.ones(1, 2), mean, torch.zeros(2), -1, noise=noise)
        tensor([[3.0000, 1.5000]])
    """
    used = mean if threshold is None else masked(mean, alive(mean, log_sigma2, threshold) | (mean == 0))
    return apply_gate(x, used, torch.exp(0.5 * log_sigma2), axis, noise)
