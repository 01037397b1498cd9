"""The training forward of a linear layer with noisy weights and its KL, in one call of compiled code each way.

What `_NoisyWeightsAndKL` of `noisy_weights` does with a matrix product. `noisy_linear.c` has products of its own, whose
operands are computed on the way: variances and masked means are made for a block of weights at a time and used while
they are in the cache, and a gradient is written when it is whole, with that of the KL.
"""

from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.joined_kl import spend
from vbdrop.functional.local_reparameterization import DEVIATION_FLOOR
from vbdrop.functional.once import once


def as_matrix(x: Tensor) -> Tensor:
    """Features of any number of axes as a matrix, a row for each place that a linear layer is applied to."""
    return x if x.dim() in (0, 2) or x.numel() == 0 else x.reshape(-1, x.shape[-1])


def usable(x: Tensor, theta: Tensor, bias: Tensor | None, noise: Tensor | None = None) -> bool:
    """Whether the kernels can take these: matrices in memory whose shapes fit together, and no autocast.

    That ``theta`` itself is float32 and in memory is for `can_join` to say.
    """
    if x.dim() != 2 or theta.dim() != 2 or x.numel() == 0 or theta.numel() == 0 or not native.usable(x):
        return False
    if not native.has_products():
        return False
    (samples, inputs), (outputs, columns) = x.shape, theta.shape
    if inputs != columns or torch._C._is_any_autocast_enabled():
        return False
    if bias is not None and not (bias.shape == (outputs,) and native.usable(bias)):
        return False
    return noise is None or (noise.shape == (samples, outputs) and native.usable(noise))


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
        sizes = samples, _, outputs = *x.shape, theta.shape[0]
        out = x.new_empty(samples, outputs)
        drawing = (1, native.seed()) if noise is None else (0, 0)
        ratio = torch.empty_like(out) if noise is None else noise.clone()
        kernels, threads = native.kernels_for_product(*sizes)
        room = x.new_empty(native.room("vbdrop_noisy_linear_room", *sizes, threads))
        total = kernels.vbdrop_noisy_linear(
            x.data_ptr(),
            theta.data_ptr(),
            log_sigma2.data_ptr(),
            None,
            None if bias is None else bias.data_ptr(),
            limit,
            DEVIATION_FLOOR,
            *drawing,
            room.data_ptr(),
            out.data_ptr(),
            ratio.data_ptr(),
            *sizes,
            threads,
        )
        ctx.save_for_backward(x, theta, log_sigma2, ratio)
        ctx.set_materialize_grads(False)
        ctx.limit, ctx.sizes = limit, sizes
        return out, torch.scalar_tensor(0.5 * total, dtype=theta.dtype, device="cpu")

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor | None, by_kl: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """All gradients that are wanted, those of the KL included."""
        spend(ctx)
        x, theta, log_sigma2, ratio = ctx.saved_tensors
        sizes = samples, inputs, outputs = ctx.sizes
        native.check_unreplaced(theta, log_sigma2, shape=(outputs, inputs))
        native.check_unreplaced(x, shape=(samples, inputs))
        scale = 0.0 if by_kl is None else by_kl.item()
        if grad is None:
            return None, *native.hierarchical_kl_gradients(theta, log_sigma2, scale), None, None, None
        grad = grad.contiguous()
        need_x, _, _, need_bias = ctx.needs_input_grad[:4]
        by_theta, by_log_sigma2 = torch.empty_like(theta), torch.empty_like(theta)
        by_x = torch.empty_like(x) if need_x else None
        by_bias = grad.new_empty(outputs) if need_bias else None
        kernels, threads = native.kernels_for_product(*sizes)
        room = x.new_empty(native.room("vbdrop_noisy_linear_backward_room", *sizes, need_x, threads))
        kernels.vbdrop_noisy_linear_backward(
            grad.data_ptr(),
            x.data_ptr(),
            theta.data_ptr(),
            log_sigma2.data_ptr(),
            None,
            ratio.data_ptr(),
            ctx.limit,
            scale,
            room.data_ptr(),
            None if by_x is None else by_x.data_ptr(),
            by_theta.data_ptr(),
            by_log_sigma2.data_ptr(),
            None if by_bias is None else by_bias.data_ptr(),
            *sizes,
            threads,
        )
        return by_x, by_theta, by_log_sigma2, by_bias, None, None


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
