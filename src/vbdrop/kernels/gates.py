"""The training forward of gates, and of a linear layer after them: kernels where they apply, else the formulas."""

import math
from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import noisy_gates_reference
from vbdrop.functional.gates import check_units
from vbdrop.functional.masks import largest_alpha
from vbdrop.kernels import binding, operators
from vbdrop.kernels.choice import as_matrix, check_unreplaced, in_memory, readable, takes_gates, takes_linear
from vbdrop.kernels.first_order_only import first_order_only


class NoisyGates(torch.autograd.Function):
    """`noisy_gates_reference`; stores x, and one number for each sample and unit."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:  # noqa: ANN401 -- torch's context, and what `binding.gate` takes
        """Multiply units by their gates."""
        out, *gates = binding.gate(*given)
        ctx.save_for_backward(*given[:2], *gates)
        return out

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """All gradients that are wanted."""
        x, mean, *gates = ctx.saved_tensors
        grad = readable(grad)
        check_unreplaced(mean, gates[0])
        check_unreplaced(x, grad)
        return *binding.gate_gradients(grad, x, mean, gates, ctx.needs_input_grad[0]), None, None, None


class GatedLinear(torch.autograd.Function):
    """Gates followed by a matrix product, in one kernel, `gated_linear.c`."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:  # noqa: ANN401 -- torch's context, and what `binding` takes
        """Gate the inputs with noise, and multiply."""
        out, *gates = binding.gated_linear(*given)
        x, mean, _, weight, *_ = given
        ctx.save_for_backward(x, mean, weight, *gates)
        ctx.samples, ctx.shape = x.shape[0], (out.shape[1], x.shape[1])
        return out

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """All gradients that are wanted."""
        x, mean, weight, *gates = ctx.saved_tensors
        check_unreplaced(mean, gates[0])
        check_unreplaced(x, shape=(ctx.samples, ctx.shape[1]))
        check_unreplaced(weight, shape=ctx.shape)
        need_x, need_bias = ctx.needs_input_grad[0], ctx.needs_input_grad[4]
        return *binding.gated_linear_gradients(readable(grad), x, mean, gates, weight, need_x, need_bias), None, None


def noisy_gates(
    x: Tensor,
    mean: Tensor,
    log_sigma2: Tensor,
    axis: int,
    threshold: float | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """`vbdrop.functional.noisy_gates_reference`, by a kernel where one applies.

    Example:
        >>> noisy_gates(torch.ones(1, 2), torch.tensor([2.0, 0.5]), torch.zeros(2), -1, noise=torch.ones(1, 2))
        tensor([[3.0000, 1.5000]])
    """
    if not takes_gates(x, mean, log_sigma2, axis, noise):
        return noisy_gates_reference(x, mean, log_sigma2, axis, threshold, noise)
    check_units(x, mean, axis)
    gated: Tensor
    if torch.compiler.is_compiling():
        gated = operators.gate(x, mean, log_sigma2, largest_alpha(threshold), _space(x, axis))[0]
    else:
        given = x, mean, log_sigma2, largest_alpha(threshold), _space(x, axis), noise
        gated = NoisyGates.apply(*given)  # type: ignore[no-untyped-call]
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
    out: Tensor
    if torch.compiler.is_compiling():
        out = operators.gated_linear(rows, mean, log_sigma2, weight, bias, largest_alpha(threshold))[0]
    else:
        given = rows, mean, log_sigma2, weight, bias, largest_alpha(threshold), noises
        out = GatedLinear.apply(*given)  # type: ignore[no-untyped-call]
    return out if rows is x else out.view(*x.shape[:-1], -1)


def _space(x: Tensor, axis: int) -> int:
    """How many numbers each unit has per sample."""
    return math.prod(x.shape[axis + 1 :]) if axis < -1 else 1
