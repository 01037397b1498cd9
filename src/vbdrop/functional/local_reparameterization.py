r"""Local reparameterization: sample the outputs of a noisy layer instead of its weights (Eq. 3).

If the weights are independent Gaussians with means ``weight`` and variances ``sigma2``, the output is Gaussian too:

.. math:: \mu = x\,\theta^T + b, \qquad \delta^2 = x^2\,(\sigma^2)^T, \qquad out = \mu + \delta\,\epsilon,

with its own noise for every example, which makes the gradients quieter than one draw of the weights a batch.
`noisy_product_reference` is the plain formula. `noisy_product` computes the same with a backward of its own, which
stores the input, the two weights and one tensor of the output's size; squares are computed again when they are needed.
"""

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.once import once
from vbdrop.functional.products import Product

DEVIATION_FLOOR = 2.0**-50
"""Deviations below this, 1e-15, count as this much, which is no noise, and get no gradient: that of a root is infinite
at zero. Its square is exact in every precision."""


def _without_autocast(x: Tensor) -> Any:  # noqa: ANN401 -- a context manager of either kind
    """A context in which products keep the precision of their arguments."""
    if not torch._C._is_any_autocast_enabled():
        return nullcontext()
    kind = x.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in this precision; what has it already is not even asked, since that takes microseconds too."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def _deviation(x: Tensor, sigma2: Tensor, product: Product) -> Tensor:
    """The standard deviation of the output, in the precision of ``sigma2`` (float32 or float64)."""
    with _without_autocast(x):
        return product(x.to(sigma2.dtype).square(), sigma2).clamp_min(DEVIATION_FLOOR**2).sqrt()


def noisy_product_reference(
    x: Tensor,
    weight: Tensor,
    sigma2: Tensor,
    bias: Tensor | None,
    product: Product,
    noise: Tensor | None = None,
) -> Tensor:
    """A sample of the output by the plain formula, differentiated by autograd.

    Args:
        x: The layer's input.
        weight: Means of the weights.
        sigma2: Variances of the weights, float32 or float64.
        bias: The bias, or None.
        product: The layer's linear map.
        noise: Standard normal numbers of the output's shape; drawn here if None.

    Returns:
        The sampled output, in the dtype in which the mean was computed.

    Example:
        >>> from vbdrop.functional import MatrixProduct
        >>> x, weight = torch.ones(1, 4), torch.ones(1, 4)
        >>> sigma2, noise = torch.ones(1, 4), torch.ones(1, 1)
        >>> noisy_product_reference(x, weight, sigma2, None, MatrixProduct(), noise)  # 4 + sqrt(4)
        tensor([[6.]])
    """
    mean = product(x, weight, bias)
    deviation = _deviation(x, sigma2, product)
    if noise is None:
        noise = torch.randn_like(deviation)
    return mean + (deviation * noise).to(mean.dtype)


class Needs(NamedTuple):
    """Which gradients are wanted."""

    x: bool
    weight: bool
    sigma2: bool
    bias: bool


def sample(
    x: Tensor, weight: Tensor, sigma2: Tensor, bias: Tensor | None, product: Product, noise: Tensor | None
) -> tuple[Tensor, Tensor]:
    """A sample of the output, and ``noise / deviation``, which is all that its backward needs beside the arguments.

    The second is zero where there is no deviation to speak of. Nothing here is seen by autograd.
    """
    mean = product(x, weight, bias)
    with _without_autocast(x):
        variance = product(_as(x, sigma2.dtype).square(), sigma2)
    if native.usable(mean, variance) if noise is None else native.usable(mean, variance, noise):
        return mean, native.sample_(mean, variance, DEVIATION_FLOOR, None if noise is None else noise.clone())
    noise = torch.randn_like(variance) if noise is None else noise.clone()
    deviation = variance.clamp_min_(DEVIATION_FLOOR**2).sqrt_()
    if mean.dtype == deviation.dtype:
        out = mean.addcmul_(deviation, noise)
    else:
        out = mean + (deviation * noise).to(mean.dtype)
    return out, noise.div_(torch.threshold_(deviation, DEVIATION_FLOOR, math.inf))


def sample_gradients(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    sigma2: Tensor,
    noise_over_deviation: Tensor,
    product: Product,
    needs: Needs,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of `sample` towards x, weight, sigma2 and bias, for an incoming gradient ``grad``."""
    dtype = grad.dtype
    with _without_autocast(x):
        by_x, by_weight = product.gradients(
            grad, _as(x, dtype), _as(weight, dtype), need_x=needs.x, need_weight=needs.weight
        )
        x_wide = _as(x, sigma2.dtype)
        # d out / d variance = noise / (2 deviation); the half is applied to the smaller operand
        by_square, by_sigma2 = product.gradients(
            noise_over_deviation * grad,
            x_wide.square().mul_(0.5),
            sigma2,
            need_x=needs.x,
            need_weight=needs.sigma2,
        )
        by_bias = product.bias_gradient(grad) if needs.bias else None
    if by_x is not None and by_square is not None:
        by_x = _as(_as(by_x, sigma2.dtype).addcmul_(by_square, x_wide), x.dtype)  # by_square may be beyond float16
    return by_x, None if by_weight is None else _as(by_weight, weight.dtype), by_sigma2, by_bias


class _NoisyProduct(torch.autograd.Function):
    """`noisy_product_reference` with a backward that recomputes what is cheap and stores what is not."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch's own context object
        x: Tensor,
        weight: Tensor,
        sigma2: Tensor,
        bias: Tensor | None,
        product: Product,
        noise: Tensor | None,
    ) -> Tensor:
        out, noise_over_deviation = sample(x, weight, sigma2, bias, product, noise)
        ctx.save_for_backward(x, weight, sigma2, noise_over_deviation)
        ctx.product = product
        return out

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight, sigma2, noise_over_deviation = ctx.saved_tensors
        needs = Needs(*ctx.needs_input_grad[:4])
        gradients = sample_gradients(grad, x, weight, sigma2, noise_over_deviation, ctx.product, needs)
        return *gradients, None, None


def noisy_product(
    x: Tensor,
    weight: Tensor,
    sigma2: Tensor,
    bias: Tensor | None,
    product: Product,
    noise: Tensor | None = None,
) -> Tensor:
    """A sample of the output, as `noisy_product_reference`, in less time and memory.

    Inside compiled code the plain formula is used, for the compiler to fuse.

    Args:
        x: The layer's input.
        weight: Means of the weights.
        sigma2: Variances of the weights, float32 or float64.
        bias: The bias, or None.
        product: The layer's linear map.
        noise: Standard normal numbers of the output's shape; drawn here if None.

    Returns:
        The sampled output.

    Example:
        >>> from vbdrop.functional import MatrixProduct
        >>> x, weight = torch.ones(1, 4), torch.ones(1, 4)
        >>> noisy_product(x, weight, torch.ones(1, 4), None, MatrixProduct(), noise=torch.ones(1, 1))
        tensor([[6.]])
    """
    if torch.compiler.is_compiling():
        return noisy_product_reference(x, weight, sigma2, bias, product, noise)
    out: Tensor = _NoisyProduct.apply(x, weight, sigma2, bias, product, noise)  # type: ignore[no-untyped-call]
    return out
