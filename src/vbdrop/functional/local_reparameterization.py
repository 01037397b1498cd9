r"""Local reparameterization: sample the outputs of a noisy layer instead of its weights (Eq. 3).

If the weights are independent Gaussians with means ``weight`` and variances ``sigma2``, the output is Gaussian too:

.. math:: \mu = x\,\theta^T + b, \qquad \delta^2 = x^2\,(\sigma^2)^T, \qquad out = \mu + \delta\,\epsilon,

with separate noise for every example, so the gradients have less variance than with one draw of the weights per batch.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from vbdrop._torch_compat import autocast_is_on
from vbdrop.functional.masks import alive_given, masked
from vbdrop.functional.memory_order import standard_normal_like, strided_as
from vbdrop.functional.products import Product

DEVIATION_FLOOR = 2.0**-50
"""The smallest standard deviation, 1e-15, which amounts to no noise. Below it the gradient is zero, since the square
root's gradient is infinite at zero. Its square is exact in every precision."""


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """A context in which products keep the precision of their arguments."""
    if not autocast_is_on():
        return nullcontext()
    kind = x.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def output_variance(x: Tensor, sigma2: Tensor, product: Product) -> Tensor:
    r"""The variance of the output, :math:`\delta^2 = x^2 (\sigma^2)^T`, in the precision of ``sigma2``.

    Args:
        x: The layer's input.
        sigma2: Variances of the weights, float32 or float64.
        product: The layer's linear map.

    Example:
        >>> from vbdrop.functional import MatrixProduct
        >>> output_variance(torch.tensor([[2.0, 3.0]]), torch.ones(1, 2), MatrixProduct())
        tensor([[13.]])
    """
    with without_autocast(x):
        return product(x.to(sigma2.dtype).square(), sigma2)


def perturbed_reference(mean: Tensor, variance: Tensor, noise: Tensor | None = None) -> Tensor:
    r"""A sample of the output, :math:`\mu + \delta\,\epsilon`.

    Args:
        mean: The means of the output, :math:`\mu`.
        variance: Their variances, :math:`\delta^2`.
        noise: Standard normal numbers of the output's shape, :math:`\epsilon`; drawn here if None.

    Returns:
        The sample, in the dtype of ``mean``.

    Example:
        >>> perturbed_reference(torch.tensor([1.0]), torch.tensor([4.0]), torch.tensor([0.5]))
        tensor([2.])
    """
    deviation = variance.clamp_min(DEVIATION_FLOOR**2).sqrt()
    if noise is None:
        noise = standard_normal_like(deviation)
    return mean + (deviation * noise).to(mean.dtype)


def noisy_product_reference(
    x: Tensor,
    weight: Tensor,
    sigma2: Tensor,
    bias: Tensor | None,
    product: Product,
    noise: Tensor | None = None,
) -> Tensor:
    """A sample of the output of a layer, given the means and variances of its weights.

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
    return perturbed_reference(mean, output_variance(x, sigma2, product), noise)


def posterior_reference(theta: Tensor, log_sigma2: Tensor, threshold: float | None) -> tuple[Tensor, Tensor]:
    """The means that a training forward uses, and the variances.

    A mean of exactly zero is not masked and keeps its gradient, so that a layer initialised to zero can learn.

    Args:
        theta: Means of the weights.
        log_sigma2: Log variances of the weights, float32 or float64.
        threshold: The ``log_alpha`` at or above which a weight's mean counts as zero (its variance stays); None for
            never.

    Example:
        >>> posterior_reference(torch.tensor([1.0, 0.1]), torch.zeros(2), threshold=3.0)
        (tensor([1., 0.]), tensor([1., 1.]))
    """
    sigma2 = strided_as(theta, log_sigma2.exp())
    if threshold is None:
        return theta, sigma2
    kept = masked(theta, alive_given(theta, sigma2, threshold) | (theta == 0))
    return strided_as(theta, kept), sigma2


def noisy_weights_reference(
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor,
    bias: Tensor | None,
    product: Product,
    threshold: float | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """A sample of the output of a layer with means ``theta`` and variances ``exp(log_sigma2)``.

    The arguments are those of `posterior_reference` and `noisy_product_reference`.

    Example:
        >>> from vbdrop.functional import MatrixProduct
        >>> x, theta, noise = torch.ones(1, 4), torch.ones(1, 4), torch.ones(1, 1)
        >>> noisy_weights_reference(x, theta, torch.zeros(1, 4), None, MatrixProduct(), noise=noise)  # 4 + sqrt(4)
        tensor([[6.]])
    """
    weight, sigma2 = posterior_reference(theta, log_sigma2, threshold)
    return noisy_product_reference(x, weight, sigma2, bias, product, noise)


def noisy_rates_reference(
    x: Tensor,
    weight: Tensor,
    log_alpha: Tensor,
    bias: Tensor | None,
    product: Product,
    noise: Tensor | None = None,
) -> Tensor:
    """A sample of the output of a layer whose weights have the variances ``exp(log_alpha) * weight**2``.

    ``log_alpha`` is float32 or float64 and broadcasts against ``weight``; the other arguments are those of
    `noisy_product_reference`.

    Example:
        >>> from vbdrop.functional import MatrixProduct
        >>> x, weight, noise = torch.ones(1, 4), torch.ones(1, 4), torch.ones(1, 1)
        >>> noisy_rates_reference(x, weight, torch.tensor(0.0), None, MatrixProduct(), noise)  # 4 + sqrt(4)
        tensor([[6.]])
    """
    sigma2 = strided_as(weight, log_alpha.exp() * weight.to(log_alpha.dtype).square())
    return noisy_product_reference(x, weight, sigma2, bias, product, noise)
