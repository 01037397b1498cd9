"""The training forward of a linear layer with noisy weights and its KL, in one call of compiled code each way.

What `_NoisyWeightsAndKL` of `noisy_weights` does with a matrix product.
"""

from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.joined_kl import spend
from vbdrop.functional.linear_kernels import as_matrix, sample, sample_gradients, usable
from vbdrop.functional.once import once


class NoisyLinear(torch.autograd.Function):
    """The sampled output and the hierarchical KL; stores the input and one tensor like the output.

    The variances are computed again in the backward.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch's own context object
        x: Tensor,
        theta: Tensor,
        log_sigma2: Tensor,
        bias: Tensor | None,
        limit: float,
        noise: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Sample the output; weights are dead where ``sigma2 >= limit * theta**2``."""
        out, ratio, kl = sample(x, theta, log_sigma2, None, bias, limit, noise)
        ctx.save_for_backward(x, theta, log_sigma2, ratio)
        ctx.set_materialize_grads(False)
        ctx.limit, ctx.inputs = limit, x.shape[1]
        return out, torch.scalar_tensor(kl, dtype=theta.dtype, device="cpu")

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor | None, by_kl: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """All gradients that are wanted, those of the KL included."""
        spend(ctx)
        x, theta, log_sigma2, ratio = ctx.saved_tensors
        native.check_unreplaced(theta, log_sigma2, shape=(ratio.shape[1], ctx.inputs))
        native.check_unreplaced(x, shape=(ratio.shape[0], ctx.inputs))
        scale = 0.0 if by_kl is None else by_kl.item()
        if grad is None:
            return None, *native.hierarchical_kl_gradients(theta, log_sigma2, scale), None, None, None
        need_x, _, _, need_bias = ctx.needs_input_grad[:4]
        saved = x, theta, log_sigma2, None, ratio, ctx.limit
        return *sample_gradients(grad, *saved, scale, need_x=need_x, need_bias=need_bias), None, None


def noisy_linear(
    x: Tensor, theta: Tensor, log_sigma2: Tensor, bias: Tensor | None, limit: float, noise: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """The sampled output of a linear layer and its KL, or None where the kernels cannot take these tensors.

    Args:
        x: The features, of any number of axes, the last one of inputs.
        theta: Means of the weights, float32 and in memory, as ``log_sigma2`` is.
        log_sigma2: Their log variances.
        bias: The bias, or None.
        limit: Weights are dead where ``sigma2 >= limit * theta**2``.
        noise: Standard normal numbers of the output's shape; drawn here if None.
    """
    rows, noises = as_matrix(x), None if noise is None else as_matrix(noise)
    if not usable(rows, theta, bias, noises):
        return None
    out, kl = NoisyLinear.apply(rows, theta, log_sigma2, bias, limit, noises)  # type: ignore[no-untyped-call]
    return (out if rows is x else out.view(*x.shape[:-1], -1)), kl
