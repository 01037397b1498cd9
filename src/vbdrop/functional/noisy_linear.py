"""The training forward of a linear layer with noisy weights and its KL, in one call of compiled code each way.

What `_NoisyWeightsAndKL` of `noisy_weights` does with a matrix product, for small layers, where the calls between the
products take longer than the products, and for large ones, where the passes over the weights go through the memory:
`linear.c` goes through them by blocks of rows, and takes torch's own matrix product.
"""

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.joined_kl import spend
from vbdrop.functional.local_reparameterization import DEVIATION_FLOOR
from vbdrop.functional.once import once

WEIGHTS_OF_A_BLOCK = 2**19
"""So many weights a thread are worked on at a time: few enough for a cache, enough for a matrix product to be quick."""


def _rows_of_a_block(inputs: int, outputs: int) -> int:
    return min(outputs, max(1, torch.get_num_threads() * WEIGHTS_OF_A_BLOCK // inputs))


def _room(*sizes: int) -> tuple[Tensor, list[int]]:
    """Memory for so many numbers each, and the addresses of the parts."""
    room = torch.empty(sum(sizes), dtype=torch.float32, device="cpu")
    starts = [room.data_ptr()]
    for size in sizes[:-1]:
        starts.append(starts[-1] + 4 * size)
    return room, starts


@lru_cache(maxsize=1)
def matrix_product() -> int | None:
    """The address of the matrix product that torch itself uses (``sgemm_``), or None if torch does not show it."""
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        path = Path(torch.__file__).parent / "lib" / name
        if path.exists():
            function = getattr(ctypes.CDLL(str(path)), "sgemm_", None)
            return None if function is None else ctypes.cast(function, ctypes.c_void_p).value
    return None


def usable(x: Tensor, theta: Tensor, bias: Tensor | None, noise: Tensor | None) -> bool:
    """Whether the kernels can take these: matrices in memory whose shapes fit together, and no autocast."""
    if x.dim() != 2 or theta.dim() != 2 or x.numel() == 0 or theta.numel() == 0 or not native.usable(x):
        return False
    (samples, inputs), (outputs, columns) = x.shape, theta.shape
    if inputs != columns or max(samples, inputs, outputs) >= 2**31 or torch._C._is_any_autocast_enabled():
        return False
    if bias is not None and not (bias.shape == (outputs,) and native.usable(bias)):
        return False
    if noise is not None and not (noise.shape == (samples, outputs) and native.usable(noise)):
        return False
    return matrix_product() is not None


class NoisyLinear(torch.autograd.Function):
    """The sampled output and the hierarchical KL; stores the input and one tensor like the output.

    The variances of a layer of one block are kept, too; those of a larger one are computed again in the backward.
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
        (samples, inputs), outputs = x.shape, theta.shape[0]
        out, rows = x.new_empty(samples, outputs), _rows_of_a_block(inputs, outputs)
        drawing = (1, native.seed()) if noise is None else (0, 0)
        ratio = torch.empty_like(out) if noise is None else noise.clone()
        sigma2 = x.new_empty(rows, inputs)
        _memory, (weight, square, variance) = _room(rows * inputs, x.numel(), out.numel())
        kernels, threads = native.kernels(theta.numel())
        total = kernels.vbdrop_linear(
            matrix_product(),
            x.data_ptr(),
            theta.data_ptr(),
            log_sigma2.data_ptr(),
            None if bias is None else bias.data_ptr(),
            limit,
            DEVIATION_FLOOR,
            *drawing,
            weight,
            sigma2.data_ptr(),
            square,
            variance,
            out.data_ptr(),
            ratio.data_ptr(),
            samples,
            inputs,
            outputs,
            rows,
            threads,
        )
        ctx.save_for_backward(x, theta, log_sigma2, ratio, sigma2 if rows == outputs else None)
        ctx.set_materialize_grads(False)
        ctx.limit, ctx.rows, ctx.inputs = limit, rows, inputs
        return out, torch.scalar_tensor(0.5 * total, dtype=theta.dtype, device="cpu")

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor | None, by_kl: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """All gradients that are wanted, those of the KL included."""
        spend(ctx)
        x, theta, log_sigma2, ratio, sigma2 = ctx.saved_tensors
        native.check_unreplaced(theta, log_sigma2, shape=(ratio.shape[1], ctx.inputs))
        native.check_unreplaced(x, shape=(ratio.shape[0], ctx.inputs))
        scale = 0.0 if by_kl is None else by_kl.item()
        if grad is None:
            return None, *native.hierarchical_kl_gradients(theta, log_sigma2, scale), None, None, None
        grad = grad.contiguous()
        (samples, outputs), inputs, rows = grad.shape, ctx.inputs, ctx.rows
        need_x, _, _, need_bias = ctx.needs_input_grad[:4]
        by_theta, by_log_sigma2 = torch.empty_like(theta), torch.empty_like(theta)
        by_x = torch.empty_like(x) if need_x else None
        by_bias = grad.new_empty(outputs) if need_bias else None
        kept, sigma2 = sigma2 is not None, x.new_empty(rows, inputs) if sigma2 is None else sigma2
        _memory, (weight, noisy, square, by_square) = _room(
            rows * inputs, grad.numel(), x.numel(), x.numel() if need_x else 0
        )
        kernels, threads = native.kernels(theta.numel())
        kernels.vbdrop_linear_backward(
            matrix_product(),
            grad.data_ptr(),
            x.data_ptr(),
            theta.data_ptr(),
            log_sigma2.data_ptr(),
            ratio.data_ptr(),
            ctx.limit,
            scale,
            kept,
            weight,
            sigma2.data_ptr(),
            noisy,
            square,
            by_square,
            None if by_x is None else by_x.data_ptr(),
            by_theta.data_ptr(),
            by_log_sigma2.data_ptr(),
            None if by_bias is None else by_bias.data_ptr(),
            samples,
            inputs,
            outputs,
            rows,
            threads,
        )
        return by_x, by_theta, by_log_sigma2, by_bias, None, None
