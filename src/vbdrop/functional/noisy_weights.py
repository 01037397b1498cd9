"""The training forward of a layer whose every weight has its own variance, as one step of autograd.

The plain way is ``noisy_product(x, masked(theta), log_sigma2.exp(), ...)``. Here the exponential, the mask and their
gradients are part of the same backward, so that autograd keeps no graph over tensors of the weight's size; where the
compiled kernels are there, so is the KL (see `joined_kl`).
"""

from typing import Any, cast

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.functional.joined_kl import JoinedKL, can_join, spend
from vbdrop.functional.local_reparameterization import Needs, noisy_product_reference, sample, sample_gradients
from vbdrop.functional.masks import keep_factor, largest_alpha, masked
from vbdrop.functional.noisy_linear import noisy_linear
from vbdrop.functional.once import once
from vbdrop.functional.products import MatrixProduct, Product


def noisy_weights_reference(
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor,
    bias: Tensor | None,
    product: Product,
    threshold: float | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """`noisy_weights` by the plain formula, differentiated by autograd."""
    sigma2 = log_sigma2.exp()
    if threshold is not None:
        theta = masked(theta, keep_factor(theta, sigma2, threshold).bool() | (theta == 0))
    return noisy_product_reference(x, theta, sigma2, bias, product, noise)


class _NoisyWeights(torch.autograd.Function):
    """Stores the input, the means, the variances, and one tensor of the output's size."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch's own context object
        x: Tensor,
        theta: Tensor,
        log_sigma2: Tensor,
        bias: Tensor | None,
        product: Product,
        threshold: float | None,
        noise: Tensor | None,
    ) -> Tensor:
        if threshold is not None and native.usable(theta, log_sigma2):
            weight, sigma2, _ = native.posterior(theta, log_sigma2, largest_alpha(threshold))
        else:
            sigma2 = _with_strides_of(theta, log_sigma2.exp())
            weight = _mean_as_used(theta, sigma2, threshold)
        out, noise_over_deviation = sample(x, weight, sigma2, bias, product, noise)
        ctx.save_for_backward(x, theta, sigma2, noise_over_deviation)
        ctx.product, ctx.threshold = product, threshold
        return out

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, theta, sigma2, noise_over_deviation = ctx.saved_tensors
        needs = Needs(*ctx.needs_input_grad[:4])
        weight = _mean_as_used(theta, sigma2, ctx.threshold) if needs.x else theta
        by_x, by_theta, by_log_sigma2, by_bias = sample_gradients(
            grad, x, weight, sigma2, noise_over_deviation, ctx.product, needs
        )
        _through_posterior_(theta, sigma2, ctx.threshold, by_theta, by_log_sigma2)
        return by_x, by_theta, by_log_sigma2, by_bias, None, None, None


class _NoisyWeightsAndKL(torch.autograd.Function):
    """`_NoisyWeights` with a mask, by the compiled kernels, and the hierarchical KL of the weights beside it."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch's own context object
        x: Tensor,
        theta: Tensor,
        log_sigma2: Tensor,
        bias: Tensor | None,
        product: Product,
        threshold: float,
        noise: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        weight, sigma2, kl = native.posterior(theta, log_sigma2, largest_alpha(threshold))
        out, noise_over_deviation = sample(x, weight, sigma2, bias, product, noise)
        ctx.save_for_backward(x, theta, log_sigma2, sigma2, noise_over_deviation)
        ctx.set_materialize_grads(False)
        ctx.product, ctx.threshold = product, threshold
        return out, torch.scalar_tensor(kl, dtype=theta.dtype, device="cpu")

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor | None, by_kl: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        spend(ctx)
        x, theta, log_sigma2, sigma2, noise_over_deviation = ctx.saved_tensors
        native.check_unreplaced(theta, log_sigma2, sigma2)
        kl_scale = 0.0 if by_kl is None else by_kl.item()
        if grad is None:
            return None, *native.hierarchical_kl_gradients(theta, log_sigma2, kl_scale), None, None, None, None
        needs = Needs(*ctx.needs_input_grad[:4])
        weight = _mean_as_used(theta, sigma2, ctx.threshold) if needs.x else theta
        by_x, by_theta, by_sigma2, by_bias = sample_gradients(
            grad, x, weight, sigma2, noise_over_deviation, ctx.product, needs
        )
        if by_theta is None or by_sigma2 is None:
            raise RuntimeError("a product must give the gradient of its weight.")
        by_theta, by_sigma2 = _ordered_as(theta, by_theta), _ordered_as(theta, by_sigma2)
        native.posterior_backward_(theta, sigma2, largest_alpha(ctx.threshold), by_theta, by_sigma2, kl_scale)
        return by_x, by_theta, by_sigma2, by_bias, None, None, None


def _mean_as_used(theta: Tensor, sigma2: Tensor, threshold: float | None) -> Tensor:
    """The masked mean; it is computed again for a backward rather than kept, being as large as the weights."""
    if threshold is None:
        return theta
    if native.usable(theta, sigma2):
        return native.masked_mean(theta, sigma2, largest_alpha(threshold))
    return _with_strides_of(theta, keep_factor(theta, sigma2, threshold).to(theta.dtype).mul_(theta))


def _with_strides_of(theta: Tensor, value: Tensor) -> Tensor:
    """The value as ``theta`` lies in memory: where there is one channel, torch picks strides, and its way by them."""
    return value if value.stride() == theta.stride() else torch.empty_like(theta, dtype=value.dtype).copy_(value)


def _ordered_as(theta: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with its numbers in memory in the order of ``theta``'s, which a convolution's may not have."""
    return gradient if native.usable(theta, gradient) else torch.empty_like(theta).copy_(gradient)


def _through_posterior_(
    theta: Tensor, sigma2: Tensor, threshold: float | None, by_theta: Tensor | None, by_sigma2: Tensor | None
) -> None:
    """Take gradients towards the weights as used back to the parameters, in place: mask and exponential.

    A mean of exactly zero is not changed by a mask, and keeps its gradient: a layer that starts at zero can learn.
    """
    if threshold is not None and by_theta is not None:
        if by_sigma2 is not None and native.usable(theta, sigma2, by_theta, by_sigma2):
            native.posterior_backward_(theta, sigma2, largest_alpha(threshold), by_theta, by_sigma2)
            return
        kept = keep_factor(theta, sigma2, threshold).to(theta.dtype)
        by_theta.mul_(torch.where(theta == 0, torch.ones_like(kept), kept))
    if by_sigma2 is not None:
        by_sigma2.mul_(sigma2)  # d sigma2 / d log_sigma2 = sigma2


def noisy_weights(
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor,
    bias: Tensor | None,
    product: Product,
    threshold: float | None = None,
    noise: Tensor | None = None,
    joined_kl: JoinedKL | None = None,
) -> Tensor:
    """A sample of the output of a layer with means ``theta`` and variances ``exp(log_sigma2)``.

    Args:
        x: The layer's input.
        theta: Means of the weights.
        log_sigma2: Log variances of the weights, float32 or float64.
        bias: The bias, or None.
        product: The layer's linear map.
        threshold: The ``log_alpha`` from which on a weight's mean counts as zero (its variance stays); None for never.
        noise: Standard normal numbers of the output's shape; drawn here if None.
        joined_kl: Takes the hierarchical KL of the weights, where it comes with the sample at little cost.

    Returns:
        The sampled output. Inside compiled code it is computed by `noisy_weights_reference`.

    Example:
        >>> from vbdrop.functional import MatrixProduct
        >>> x, theta = torch.ones(1, 4), torch.ones(1, 4)
        >>> noisy_weights(x, theta, torch.zeros(1, 4), None, MatrixProduct(), noise=torch.ones(1, 1))  # 4 + sqrt(4)
        tensor([[6.]])
    """
    if torch.compiler.is_compiling():
        return noisy_weights_reference(x, theta, log_sigma2, bias, product, threshold, noise)
    joins = threshold is not None and can_join(theta, log_sigma2)
    kl: Tensor | None = None
    in_one_call: tuple[Tensor, Tensor] | None = None
    if joins and type(product) is MatrixProduct:
        in_one_call = noisy_linear(x, theta, log_sigma2, bias, largest_alpha(cast(float, threshold)), noise)
    if in_one_call is not None:
        out, kl = in_one_call
    elif joins and joined_kl is not None:
        out, kl = _NoisyWeightsAndKL.apply(x, theta, log_sigma2, bias, product, threshold, noise)  # type: ignore[no-untyped-call]
    else:
        out = _NoisyWeights.apply(x, theta, log_sigma2, bias, product, threshold, noise)  # type: ignore[no-untyped-call]
    if joined_kl is not None:
        if kl is None:
            joined_kl.clear()
        else:
            joined_kl.put(kl, theta, log_sigma2)
    sampled: Tensor = out
    return sampled
