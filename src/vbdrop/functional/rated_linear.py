"""The training forward of a linear layer whose inputs have a rate each, in one call of compiled code each way.

What `noisy_product` does with a matrix product and ``sigma2 = alpha * weight**2``, by the kernels of `noisy_linear`: the
variances are never there for all weights at once.
"""

from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.local_reparameterization import DEVIATION_FLOOR
from vbdrop.functional.noisy_linear import as_matrix, usable
from vbdrop.functional.once import once


class RatedLinear(torch.autograd.Function):
    """The sampled output; stores the input and one tensor like the output."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch's own context object
        x: Tensor,
        weight: Tensor,
        log_alpha: Tensor,
        bias: Tensor | None,
        noise: Tensor | None,
    ) -> Tensor:
        """Sample the output of a layer whose weights have the variances ``exp(log_alpha) * weight**2``."""
        sizes = samples, _, outputs = *x.shape, weight.shape[0]
        out, alpha = x.new_empty(samples, outputs), log_alpha.exp()
        drawing = (1, native.seed()) if noise is None else (0, 0)
        ratio = torch.empty_like(out) if noise is None else noise.clone()
        kernels, threads = native.kernels_for_product(*sizes)
        room = x.new_empty(native.room("vbdrop_noisy_linear_room", *sizes, threads))
        kernels.vbdrop_noisy_linear(
            x.data_ptr(),
            weight.data_ptr(),
            None,
            alpha.data_ptr(),
            None if bias is None else bias.data_ptr(),
            0.0,
            DEVIATION_FLOOR,
            *drawing,
            room.data_ptr(),
            out.data_ptr(),
            ratio.data_ptr(),
            *sizes,
            threads,
        )
        ctx.save_for_backward(x, weight, alpha, ratio)
        ctx.sizes = sizes
        return out

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """All gradients that are wanted."""
        x, weight, alpha, ratio = ctx.saved_tensors
        sizes = samples, inputs, outputs = ctx.sizes
        native.check_unreplaced(weight, shape=(outputs, inputs))
        native.check_unreplaced(x, shape=(samples, inputs))
        grad = grad.contiguous()
        need_x, _, _, need_bias = ctx.needs_input_grad[:4]
        by_x = torch.empty_like(x) if need_x else None
        by_weight, by_log_alpha = torch.empty_like(weight), torch.empty_like(alpha)
        by_bias = grad.new_empty(outputs) if need_bias else None
        kernels, threads = native.kernels_for_product(*sizes)
        room = x.new_empty(native.room("vbdrop_noisy_linear_backward_room", *sizes, need_x, threads))
        kernels.vbdrop_noisy_linear_backward(
            grad.data_ptr(),
            x.data_ptr(),
            weight.data_ptr(),
            None,
            alpha.data_ptr(),
            ratio.data_ptr(),
            0.0,
            0.0,
            room.data_ptr(),
            None if by_x is None else by_x.data_ptr(),
            by_weight.data_ptr(),
            by_log_alpha.data_ptr(),
            None if by_bias is None else by_bias.data_ptr(),
            *sizes,
            threads,
        )
        return by_x, by_weight, by_log_alpha, by_bias, None


def rated_linear(
    x: Tensor, weight: Tensor, log_alpha: Tensor, bias: Tensor | None, noise: Tensor | None = None
) -> Tensor | None:
    """A sample of the output of a linear layer, or None where the kernels cannot take these tensors.

    Args:
        x: The features, of any number of axes, the last one of inputs.
        weight: Means of the weights, [outputs, inputs].
        log_alpha: A log alpha for each input, or one for all.
        bias: The bias, or None.
        noise: Standard normal numbers of the output's shape; drawn here if None.
    """
    if torch.compiler.is_compiling() or not weight.requires_grad or not native.usable(weight):
        return None
    rows, noises = as_matrix(x), None if noise is None else as_matrix(noise)
    rates = log_alpha.expand(weight.shape[1]).contiguous() if log_alpha.dim() == 0 else log_alpha
    if not usable(rows, weight, bias, noises) or not native.usable(rates) or rates.shape != weight.shape[1:]:
        return None
    out: Tensor = RatedLinear.apply(rows, weight, rates, bias, noises)  # type: ignore[no-untyped-call]
    return out if rows is x else out.view(*x.shape[:-1], -1)
