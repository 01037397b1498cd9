"""The training forward of a linear layer whose inputs have a rate each, in one call of compiled code each way.

What `noisy_product` does with a matrix product and ``sigma2 = alpha * weight**2``.
"""

from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.linear_kernels import as_matrix, sample, sample_gradients, usable
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
        alpha = log_alpha.exp()
        out, ratio, _ = sample(x, weight, None, alpha, bias, 0.0, noise)
        ctx.save_for_backward(x, weight, alpha, ratio)
        return out

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """All gradients that are wanted."""
        x, weight, alpha, ratio = ctx.saved_tensors
        native.check_unreplaced(weight, shape=(ratio.shape[1], alpha.numel()))
        native.check_unreplaced(x, shape=(ratio.shape[0], alpha.numel()))
        need_x, _, _, need_bias = ctx.needs_input_grad[:4]
        saved = x, weight, None, alpha, ratio, 0.0
        return *sample_gradients(grad, *saved, 0.0, need_x=need_x, need_bias=need_bias), None


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
