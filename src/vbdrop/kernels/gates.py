"""The training forward of gates and of a linear layer after them: kernels where they apply, else the formulas."""

import math

from torch import Tensor

from vbdrop.functional import noisy_gates_reference
from vbdrop.functional.gates import check_units
from vbdrop.functional.masks import largest_alpha
from vbdrop.kernels import operators
from vbdrop.kernels.choice import as_matrix, in_memory, takes_gates, takes_linear


def noisy_gates(
    x: Tensor,
    mean: Tensor,
    log_sigma2: Tensor,
    axis: int,
    threshold: float | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """`vbdrop.functional.noisy_gates_reference`, computed by a kernel where one applies.

    Example:
        >>> import torch
        >>> noisy_gates(torch.ones(1, 2), torch.tensor([2.0, 0.5]), torch.zeros(2), -1, noise=torch.ones(1, 2))
        tensor([[3.0000, 1.5000]])
    """
    if not takes_gates(x, mean, log_sigma2, axis, noise):
        return noisy_gates_reference(x, mean, log_sigma2, axis, threshold, noise)
    check_units(x, mean, axis)
    gated: Tensor = operators.gate(x, mean, log_sigma2, largest_alpha(threshold), _space(x, axis), noise)
    return gated


def gated_linear(
    x: Tensor,
    mean: Tensor,
    log_sigma2: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    threshold: float | None = None,
    noise: Tensor | None = None,
) -> Tensor | None:
    """The output of a linear layer whose inputs go through gates, in one call.

    ``weight`` and ``bias`` are those of the layer; the other arguments are those of `noisy_gates`, with one gate per
    entry of the last axis of ``x``.

    Returns:
        The output, or None if the kernel cannot take these tensors: then call `noisy_gates` and the layer.
    """
    rows, noises = as_matrix(x), None if noise is None else as_matrix(noise)
    if not takes_linear(rows, weight, bias, noises, noise_axis=1):
        return None
    if not in_memory(mean, log_sigma2) or mean.shape != weight.shape[1:]:
        return None
    out: Tensor = operators.gated_linear(rows, mean, log_sigma2, weight, bias, largest_alpha(threshold), noises)
    return out if rows is x else out.view(*x.shape[:-1], -1)


def _space(x: Tensor, axis: int) -> int:
    """How many numbers each unit has per sample."""
    return math.prod(x.shape[axis + 1 :]) if axis < -1 else 1
