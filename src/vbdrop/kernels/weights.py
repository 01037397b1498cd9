"""The training forward of layers with noisy weights: kernels where they apply, else the formulas.

A linear layer has one call for the forward and one for the backward (`noisy_linear.c`): its products compute the
variances for one block of weights at a time and use them while they are in the cache. A convolution leaves its products
to torch, between two kernels (`weights.c`): one computes means and variances from the parameters, the other samples
the output from its moments.
"""

from torch import Tensor

from vbdrop.functional import (
    MatrixProduct,
    Product,
    perturbed_reference,
    posterior_reference,
    strided_as,
)
from vbdrop.functional.local_reparameterization import output_variance
from vbdrop.functional.masks import largest_alpha
from vbdrop.kernels import operators
from vbdrop.kernels.choice import as_matrix, takes, takes_linear

_Rates = tuple[Tensor | None, Tensor | None]
"""The log variances of the weights, or the log alphas of the inputs."""


def _linear(
    x: Tensor, theta: Tensor, rates: _Rates, bias: Tensor | None, limit: float, noise: Tensor | None
) -> Tensor | None:
    """The output of a linear layer by its kernel; None if the kernel cannot take these tensors."""
    rows, noises = as_matrix(x), None if noise is None else as_matrix(noise)
    if not takes_linear(rows, theta, bias, noises, noise_axis=0):
        return None
    out: Tensor = operators.noisy_linear(rows, theta, *rates, bias, limit, noises)
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
        >>> import torch
        >>> x, weight = torch.ones(1, 4), torch.ones(1, 4)
        >>> noisy_product(x, weight, torch.ones(1, 4), None, MatrixProduct(), noise=torch.ones(1, 1))
        tensor([[6.]])
    """
    mean, variance = product(x, weight, bias), output_variance(x, sigma2, product)
    if not takes(mean, variance, *([] if noise is None else [noise])):
        return perturbed_reference(mean, variance, noise)
    out: Tensor = operators.perturbed(mean, variance, noise)
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
    """`vbdrop.functional.noisy_weights_reference`, computed by kernels where they apply.

    Example:
        >>> import torch
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
    weight, sigma2 = operators.posterior(theta, log_sigma2, limit)
    return noisy_product(x, weight, sigma2, bias, product, noise)


def noisy_rates(
    x: Tensor,
    weight: Tensor,
    log_alpha: Tensor,
    bias: Tensor | None,
    product: Product,
    noise: Tensor | None = None,
) -> Tensor:
    """`vbdrop.functional.noisy_rates_reference`, computed by kernels where they apply.

    Example:
        >>> import torch
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
    sigma2 = strided_as(weight, log_alpha.exp() * weight.to(log_alpha.dtype).square())
    return noisy_product(x, weight, sigma2, bias, product, noise)
