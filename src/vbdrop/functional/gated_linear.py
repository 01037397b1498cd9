"""The training forward of a linear layer with gates on its inputs, and their KL, in one call of compiled code each way.

What `noisy_gates` and then a matrix product do. `gated_linear.c` multiplies the gated inputs where it makes them, and
adds up the gates' gradients from what is in the cache.
"""

from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.joined_kl import JoinedKL, can_join, spend
from vbdrop.functional.linear_kernels import as_matrix, usable
from vbdrop.functional.masks import largest_alpha
from vbdrop.functional.once import once


class GatedLinear(torch.autograd.Function):
    """The output and the hierarchical KL of the gates; stores x and one number a sample and input."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch's own context object
        x: Tensor,
        mean: Tensor,
        log_sigma2: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        limit: float,
        noise: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Gate the inputs with noise and multiply; gates are dead where ``sigma2 >= limit * mean**2``."""
        sizes = samples, _, outputs = *x.shape, weight.shape[0]
        out, gate, deviation = x.new_empty(samples, outputs), torch.empty_like(mean), torch.empty_like(mean)
        drawing = (1, native.seed()) if noise is None else (0, 0)
        noise = torch.empty_like(x) if noise is None else noise
        kernels, threads = native.kernels_for_product(*sizes)
        room = x.new_empty(native.room("vbdrop_gated_linear_room", *sizes, threads))
        total = kernels.vbdrop_gated_linear(
            x.data_ptr(),
            mean.data_ptr(),
            log_sigma2.data_ptr(),
            weight.data_ptr(),
            None if bias is None else bias.data_ptr(),
            limit,
            gate.data_ptr(),
            deviation.data_ptr(),
            noise.data_ptr(),
            *drawing,
            room.data_ptr(),
            out.data_ptr(),
            *sizes,
            threads,
        )
        ctx.save_for_backward(x, mean, log_sigma2, weight, gate, deviation, noise)
        ctx.set_materialize_grads(False)
        ctx.sizes = sizes
        return out, torch.scalar_tensor(0.5 * total, dtype=mean.dtype, device="cpu")

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor | None, by_kl: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """All gradients that are wanted, those of the KL included."""
        spend(ctx)
        x, mean, log_sigma2, weight, gate, deviation, noise = ctx.saved_tensors
        sizes = _, inputs, outputs = ctx.sizes
        native.check_unreplaced(mean, log_sigma2, gate)
        native.check_unreplaced(x, noise)
        native.check_unreplaced(weight, shape=(outputs, inputs))
        scale = 0.0 if by_kl is None else by_kl.item()
        if grad is None:
            return None, *native.hierarchical_kl_gradients(mean, log_sigma2, scale), None, None, None, None
        grad = grad.contiguous()
        by_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        by_mean, by_log_sigma2, by_weight = torch.empty_like(mean), torch.empty_like(mean), torch.empty_like(weight)
        by_bias = grad.new_empty(outputs) if ctx.needs_input_grad[4] else None
        kernels, threads = native.kernels_for_product(*sizes)
        room = x.new_empty(native.room("vbdrop_gated_linear_backward_room", *sizes, threads))
        kernels.vbdrop_gated_linear_backward(
            grad.data_ptr(),
            x.data_ptr(),
            mean.data_ptr(),
            gate.data_ptr(),
            deviation.data_ptr(),
            noise.data_ptr(),
            weight.data_ptr(),
            scale,
            room.data_ptr(),
            None if by_x is None else by_x.data_ptr(),
            by_mean.data_ptr(),
            by_log_sigma2.data_ptr(),
            by_weight.data_ptr(),
            None if by_bias is None else by_bias.data_ptr(),
            *sizes,
            threads,
        )
        return by_x, by_mean, by_log_sigma2, by_weight, by_bias, None, None


def gated_linear(
    x: Tensor,
    mean: Tensor,
    log_sigma2: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    threshold: float | None = None,
    noise: Tensor | None = None,
    joined_kl: JoinedKL | None = None,
) -> Tensor | None:
    """The output of a linear layer whose inputs are gated, or None where the kernels cannot take these tensors.

    Args:
        x: The features, of any number of axes, the last one of inputs.
        mean: The gates' means, one an input.
        log_sigma2: Their log variances.
        weight: The layer's weights, [outputs, inputs].
        bias: The layer's bias, or None.
        threshold: The ``log_alpha`` from which on a gate's mean counts as zero (its variance stays); None for never.
        noise: Standard normal numbers of the shape of ``x``; drawn here if None.
        joined_kl: Takes the hierarchical KL of the gates, if there is an output.
    """
    if torch.compiler.is_compiling() or not (weight.requires_grad and can_join(mean, log_sigma2)):
        return None
    rows, noises = as_matrix(x), None if noise is None else as_matrix(noise)
    if not usable(rows, weight, bias) or not native.usable(weight) or mean.shape != rows.shape[1:]:
        return None
    if noises is not None and not native.usable(rows, noises):
        return None
    limit = float("inf") if threshold is None else largest_alpha(threshold)
    out, kl = GatedLinear.apply(rows, mean, log_sigma2, weight, bias, limit, noises)  # type: ignore[no-untyped-call]
    if joined_kl is not None:
        joined_kl.put(kl, mean, log_sigma2)
    gated: Tensor = out if rows is x else out.view(*x.shape[:-1], -1)
    return gated
