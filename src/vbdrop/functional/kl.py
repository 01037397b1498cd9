"""The sum of a prior's KL over a tensor of weights, with the gradient in closed form."""

from typing import Any

import torch
from torch import Tensor

from vbdrop.functional import native
from vbdrop.priors import Hierarchical, LogUniform, Prior

_COMPILED = {
    Hierarchical: (native.hierarchical_kl, native.hierarchical_kl_gradients),
    LogUniform: (native.log_uniform_kl, native.log_uniform_kl_gradients),
}
"""Prior -> its sum and gradients in compiled code."""


class _KLSum(torch.autograd.Function):
    """Takes the exponential once, for value and gradient; the backward scales with the incoming gradient."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, log_sigma2: Tensor, prior: Prior) -> Tensor:  # noqa: ANN401
        ctx.prior = prior
        ctx.compiled = _COMPILED.get(type(prior)) if native.usable(theta, log_sigma2) else None
        if ctx.compiled is not None:
            ctx.save_for_backward(theta, log_sigma2)
            compiled: Tensor = ctx.compiled[0](theta, log_sigma2)
            return compiled
        sigma2 = log_sigma2.exp()
        ctx.save_for_backward(theta, log_sigma2, sigma2)
        return prior.kl_sum(theta.to(log_sigma2.dtype), log_sigma2, sigma2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        theta, log_sigma2, *rest = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: a second derivative needs the plain formula
            total = ctx.prior.kl(theta.to(log_sigma2.dtype), log_sigma2).sum()
            wanted = [leaf for leaf in (theta, log_sigma2) if leaf.requires_grad]
            found = iter(torch.autograd.grad(total, wanted, grad, create_graph=True))
            return *(next(found) if leaf.requires_grad else None for leaf in (theta, log_sigma2)), None
        if ctx.compiled is not None:
            return *ctx.compiled[1](theta, log_sigma2, grad.item()), None
        (sigma2,) = rest
        by_theta, by_log_sigma2 = ctx.prior.kl_gradients(theta.to(log_sigma2.dtype), log_sigma2, sigma2)
        return by_theta.mul_(grad).to(theta.dtype), by_log_sigma2.mul_(grad), None


def kl_sum(theta: Tensor, log_sigma2: Tensor, prior: Prior) -> Tensor:
    """The KL divergence of all these weights from their prior: one number.

    Args:
        theta: Means of the weights.
        log_sigma2: Log variances of the weights, of the same shape, float32 or float64.
        prior: The prior of each of them.

    Returns:
        The sum over the weights. The same as ``prior.kl(theta, log_sigma2).sum()``, value and gradient.

    Example:
        >>> from vbdrop.priors import Hierarchical
        >>> float(kl_sum(torch.ones(2), torch.zeros(2), Hierarchical()))  # twice half of log 2
        0.693...
    """
    if torch.compiler.is_compiling():
        return prior.kl(theta.to(log_sigma2.dtype), log_sigma2).sum()
    total: Tensor = _KLSum.apply(theta, log_sigma2, prior)  # type: ignore[no-untyped-call]
    return total
