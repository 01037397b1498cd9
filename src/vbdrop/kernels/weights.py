"""The training forward of layers with noisy weights: kernels where they apply, else the formulas.

A linear layer has one call for the forward and one for the backward (`noisy_linear.c`): its products compute the
variances for one block of weights at a time and use them while they are in the cache. A convolution leaves its products
to torch, between two kernels (`weights.c`): one computes means and variances from the parameters, the other samples
the output from its moments.
"""

from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import (
    MatrixProduct,
    Product,
    perturbed_reference,
    posterior_reference,
)
from vbdrop.functional.local_reparameterization import output_variance
from vbdrop.functional.masks import largest_alpha
from vbdrop.kernels import binding, operators
from vbdrop.kernels.choice import as_matrix, check_unreplaced, in_memory, readable, takes, takes_linear
from vbdrop.kernels.first_order_only import first_order_only

_Rates = tuple[Tensor | None, Tensor | None]
"""The log variances of the weights, or the log alphas of the inputs."""


class _Posterior(torch.autograd.Function):
    """`posterior_reference`; stores the means and the variances."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, log_sigma2: Tensor, limit: float) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        weight, sigma2 = binding.posterior(theta, log_sigma2, limit)
        ctx.save_for_backward(theta, sigma2)
        ctx.limit = limit
        return weight, sigma2

    @staticmethod
    @first_order_only
    def backward(ctx: Any, by_weight: Tensor, by_sigma2: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        theta, sigma2 = ctx.saved_tensors
        check_unreplaced(theta, sigma2)
        given = (g if in_memory(theta, g) else torch.empty_like(theta).copy_(g) for g in (by_weight, by_sigma2))
        return *binding.posterior_gradients(theta, sigma2, ctx.limit, *given), None


class _Perturbed(torch.autograd.Function):
    """`perturbed_reference`; stores one tensor of the output's size."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor, noise: Tensor | None) -> Tensor:  # noqa: ANN401
        out, slope = binding.perturbed(mean, variance, noise)
        ctx.save_for_backward(slope)
        return out

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (slope,) = ctx.saved_tensors
        return grad, grad * slope, None


class NoisyLinear(torch.autograd.Function):
    """`noisy_weights_reference` or `noisy_rates_reference` of a linear layer; the variances are computed twice.

    Stores the arguments and one tensor of the output's size.
    """

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:  # noqa: ANN401 -- torch's context, and what `binding` takes
        """Sample the output; alpha is given as its logarithm."""
        x, theta, log_sigma2, log_alpha, bias, limit, noise = given
        alpha = None if log_alpha is None else log_alpha.exp()
        out, slope = binding.noisy_linear(x, theta, log_sigma2, alpha, bias, limit, noise)
        ctx.save_for_backward(x, theta, log_sigma2, alpha, slope)
        ctx.limit, ctx.inputs = limit, x.shape[1]
        return out

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """All gradients that are wanted."""
        x, theta, log_sigma2, alpha, slope = ctx.saved_tensors
        like_theta = (theta,) if log_sigma2 is None else (theta, log_sigma2)
        check_unreplaced(*like_theta, shape=(slope.shape[1], ctx.inputs))
        check_unreplaced(x, shape=(slope.shape[0], ctx.inputs))
        need_x, _, _, _, need_bias = ctx.needs_input_grad[:5]
        given = x, theta, log_sigma2, alpha, slope, ctx.limit, need_x, need_bias
        by_x, by_theta, by_rate, by_bias = binding.noisy_linear_gradients(readable(grad), *given)
        by_rates = (by_rate, None) if alpha is None else (None, by_rate)
        return by_x, by_theta, *by_rates, by_bias, None, None


def _linear(
    x: Tensor, theta: Tensor, rates: _Rates, bias: Tensor | None, limit: float, noise: Tensor | None
) -> Tensor | None:
    """The output of a linear layer by its kernel; None if the kernel cannot take these tensors."""
    rows, noises = as_matrix(x), None if noise is None else as_matrix(noise)
    if not takes_linear(rows, theta, bias, noises, noise_axis=0):
        return None
    out: Tensor
    if torch.compiler.is_compiling():
        out = operators.noisy_linear(rows, theta, *rates, bias, limit)[0]
    else:
        out = NoisyLinear.apply(rows, theta, *rates, bias, limit, noises)  # type: ignore[no-untyped-call]
    return out if rows is x else out.view(*x.shape[:-1], -1)


def noisy_product(
    x: Tensor,
    weight: Tensor,
    sigma2: Tensor,
    bias: Tensor | None,
    product: Product,
    noise: Tensor | None = None,
) -> Tensor:
    """`vbdrop.functional.noisy_product_reference`, with the noise from a kernel where one applies.

    Example:
        >>> x, weight = torch.ones(1, 4), torch.ones(1, 4)
        >>> noisy_product(x, weight, torch.ones(1, 4), None, MatrixProduct(), noise=torch.ones(1, 1))
        tensor([[6.]])
    """
    mean, variance = product(x, weight, bias), output_variance(x, sigma2, product)
    compiling = torch.compiler.is_compiling()
    if not takes(mean, variance, *([] if noise is None else [noise])) or (compiling and noise is not None):
        return perturbed_reference(mean, variance, noise)
    if compiling:
        sampled: Tensor = operators.perturbed(mean, variance)[0]
        return sampled
    out: Tensor = _Perturbed.apply(mean, variance, noise)  # type: ignore[no-untyped-call]
    return out


def noisy_weights(
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor,
    bias: Tensor | None,
    product: Product,
    threshold: float | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """`vbdrop.functional.noisy_weights_reference`, by kernels where they apply.

    Example:
        >>> x, theta = torch.ones(1, 4), torch.ones(1, 4)
        >>> noisy_weights(x, theta, torch.zeros(1, 4), None, MatrixProduct(), noise=torch.ones(1, 1))  # 4 + sqrt(4)
        tensor([[6.]])
    """
    if not takes(theta, log_sigma2):
        return noisy_product(x, *posterior_reference(theta, log_sigma2, threshold), bias, product, noise)
    limit = largest_alpha(threshold)
    if type(product) is MatrixProduct:
        out = _linear(x, theta, (log_sigma2, None), bias, limit, noise)
        if out is not None:
            return out
    if torch.compiler.is_compiling():
        weight, sigma2 = operators.posterior(theta, log_sigma2, limit)
    else:
        weight, sigma2 = _Posterior.apply(theta, log_sigma2, limit)  # type: ignore[no-untyped-call]
    return noisy_product(x, weight, sigma2, bias, product, noise)


def noisy_rates(
    x: Tensor,
    weight: Tensor,
    log_alpha: Tensor,
    bias: Tensor | None,
    product: Product,
    noise: Tensor | None = None,
) -> Tensor:
    """`vbdrop.functional.noisy_rates_reference`, by kernels where they apply.

    Example:
        >>> x, weight = torch.ones(1, 4), torch.ones(1, 4)
        >>> noisy_rates(x, weight, torch.tensor(0.0), None, MatrixProduct(), noise=torch.ones(1, 1))  # 4 + sqrt(4)
        tensor([[6.]])
    """
    per_input = weight.dim() == 2 and (log_alpha.dim() == 0 or log_alpha.shape == (1, weight.shape[1]))
    if type(product) is MatrixProduct and per_input and takes(log_alpha):
        inputs = log_alpha.expand(weight.shape[1]) if log_alpha.dim() == 0 else log_alpha[0]
        out = _linear(x, weight, (None, inputs.contiguous()), bias, 0.0, noise)
        if out is not None:
            return out
    sigma2 = log_alpha.exp() * weight.to(log_alpha.dtype).square()
    return noisy_product(x, weight, sigma2, bias, product, noise)
