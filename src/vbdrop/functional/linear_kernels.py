"""The kernels of linear layers with noisy weights: what they take, and how they are called.

`noisy_linear.c` has products of its own, whose operands are computed on the way: the variances are made for a block of
weights at a time and used while they are in the cache, and a gradient is written when it is whole.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.local_reparameterization import DEVIATION_FLOOR


def as_matrix(x: Tensor) -> Tensor:
    """Features of any number of axes as a matrix, a row for each place that a linear layer is applied to."""
    return x if x.dim() in (0, 2) or x.numel() == 0 else x.reshape(-1, x.shape[-1])


def usable(x: Tensor, theta: Tensor, bias: Tensor | None, noise: Tensor | None = None) -> bool:
    """Whether the kernels can take these: matrices in memory whose shapes fit together, and no autocast.

    That ``theta`` itself is float32 and in memory is for the caller to ask.
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


class Sampled(NamedTuple):
    """The results of `sample`: what the forward gives, and what its backward needs."""

    out: Tensor
    noise_over_deviation: Tensor
    kl: float


def sample(
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor | None,
    alpha: Tensor | None,
    bias: Tensor | None,
    limit: float,
    noise: Tensor | None,
) -> Sampled:
    """Sample the output of a layer whose weights have a log variance each, or whose inputs have an alpha each.

    With ``log_sigma2``, weights are dead where ``sigma2 >= limit * theta**2``, and the KL is the hierarchical prior's.
    With ``alpha``, the variances are ``alpha * theta**2``, and the KL is 0.
    """
    sizes = samples, _, outputs = *x.shape, theta.shape[0]
    out = x.new_empty(samples, outputs)
    drawing = (1, native.seed()) if noise is None else (0, 0)
    ratio = torch.empty_like(out) if noise is None else noise.clone()
    kernels, threads = native.kernels_for_product(*sizes)
    room = x.new_empty(native.room("vbdrop_noisy_linear_room", *sizes, threads))
    total: float = kernels.vbdrop_noisy_linear(
        x.data_ptr(),
        theta.data_ptr(),
        _address(log_sigma2),
        _address(alpha),
        _address(bias),
        limit,
        DEVIATION_FLOOR,
        *drawing,
        room.data_ptr(),
        out.data_ptr(),
        ratio.data_ptr(),
        *sizes,
        threads,
    )
    return Sampled(out, ratio, 0.5 * total)


def sample_gradients(
    grad: Tensor,
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor | None,
    alpha: Tensor | None,
    noise_over_deviation: Tensor,
    limit: float,
    kl_scale: float,
    *,
    need_x: bool,
    need_bias: bool,
) -> tuple[Tensor | None, Tensor, Tensor, Tensor | None]:
    """The gradients of `sample` towards x, theta, log_sigma2 or log alpha, and bias, with ``kl_scale`` of the KL's."""
    grad = grad.contiguous()
    sizes = _, _, outputs = *x.shape, theta.shape[0]
    by_x = torch.empty_like(x) if need_x else None
    by_theta, by_rate = torch.empty_like(theta), torch.empty_like(theta if alpha is None else alpha)
    by_bias = grad.new_empty(outputs) if need_bias else None
    kernels, threads = native.kernels_for_product(*sizes)
    room = x.new_empty(native.room("vbdrop_noisy_linear_backward_room", *sizes, need_x, threads))
    kernels.vbdrop_noisy_linear_backward(
        grad.data_ptr(),
        x.data_ptr(),
        theta.data_ptr(),
        _address(log_sigma2),
        _address(alpha),
        noise_over_deviation.data_ptr(),
        limit,
        kl_scale,
        room.data_ptr(),
        _address(by_x),
        by_theta.data_ptr(),
        by_rate.data_ptr(),
        _address(by_bias),
        *sizes,
        threads,
    )
    return by_x, by_theta, by_rate, by_bias


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
