"""The KL of many tensors of weights as one step of autograd: value and gradient in one pass over each tensor."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from vbdrop._torch_compat import transforms_are_on
from vbdrop.functional import kl_and_gradients_reference, kl_sum_reference
from vbdrop.kernels import binding, operators
from vbdrop.kernels.choice import takes
from vbdrop.priors import Hierarchical, LogUniform, Prior

T = TypeVar("T")

_COMPILED = {Hierarchical: ("vbdrop_kl", 0.5), LogUniform: ("vbdrop_log_uniform_kl", 1.0)}
"""Prior -> the C function for its sum, and the factor that turns the function's result into the KL."""

FUSED_BELOW = 4096
"""For fewer elements, such as gates, a compiler fuses the formula into something faster than a call."""


class KLTerm(NamedTuple):
    """What the KL of one tensor depends on besides its means and log variances.

    Attributes:
        prior: The prior of each weight.
        factor: A factor on the KL of each weight: one number, or a tensor that broadcasts against the weights.
    """

    prior: Prior
    factor: float | Tensor = 1.0


def _value_and_gradients(
    term: KLTerm, theta: Tensor, log_sigma2: Tensor, scale: float, needed: bool
) -> tuple[float | Tensor, Tensor | None, Tensor | None]:
    """The KL of one tensor of weights (a float from a kernel), and ``scale`` times its gradients if they are needed."""
    compiled = _COMPILED.get(type(term.prior))
    if compiled is not None and not isinstance(term.factor, Tensor) and takes(theta, log_sigma2):
        name, share = compiled
        slope = scale * term.factor
        total, by_theta, by_log_sigma2 = binding.kl(name, theta, log_sigma2, slope, need_gradients=needed)
        return share * term.factor * total, by_theta, by_log_sigma2
    if not needed:
        return kl_sum_reference(theta, log_sigma2, *term), None, None
    return kl_and_gradients_reference(theta, log_sigma2, *term, scale)


def _traced(term: KLTerm, theta: Tensor, log_sigma2: Tensor) -> Tensor:
    """The KL of one tensor of weights for a compiler or a transform: an operator, or the formula."""
    compiled = _COMPILED.get(type(term.prior))
    by_formula = compiled is None or isinstance(term.factor, Tensor) or theta.numel() < FUSED_BELOW
    if compiled is None or by_formula or not takes(theta, log_sigma2):
        return kl_sum_reference(theta, log_sigma2, *term)
    total: Tensor = operators.kl(theta, log_sigma2, *compiled)
    return total * term.factor


def scaled(kl: Tensor, scale: float | Tensor) -> Tensor:
    """The product of both in the KL's dtype: a scalar tensor of a wider dtype would otherwise determine it.

    Example:
        >>> scaled(torch.tensor(2.0), torch.tensor(0.5, dtype=torch.float64))
        tensor(1.)
    """
    return kl * (scale.to(kl.dtype) if isinstance(scale, Tensor) else scale)


def _sum(values: Sequence[Tensor]) -> Tensor:
    """The sum, on the device of the first value."""
    total = values[0]
    for value in values[1:]:
        total = total + (value if value.device == total.device else value.to(total.device))
    return total


def _pairs(items: Sequence[T]) -> Iterator[tuple[T, T]]:
    return zip(items[::2], items[1::2], strict=True)


class _KLTotal(torch.autograd.Function):
    """``scale`` times the KL, differentiable, and the KL itself, detached; the forward computes the gradients too."""

    @staticmethod
    def forward(ctx: Any, terms: Sequence[KLTerm], scale: float, *tensors: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        by_kernels, values, gradients = 0.0, list[Tensor](), list[Tensor | None]()
        for term, pair, needed in zip(terms, _pairs(tensors), _pairs(ctx.needs_input_grad[2:]), strict=True):
            value, *found = _value_and_gradients(term, *pair, scale, any(needed))
            if isinstance(value, Tensor):
                values.append(value)
            else:
                by_kernels += value
            gradients += [gradient if need else None for gradient, need in zip(found, needed, strict=True)]
        if by_kernels or not values:
            values.append(torch.scalar_tensor(by_kernels, device="cpu"))
        total = _sum(values)
        ctx.terms, ctx.scale, ctx.count = terms, scale, len(tensors)
        ctx.save_for_backward(*tensors, *gradients)
        ctx.mark_non_differentiable(total)
        return total * scale, total

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        saved = ctx.saved_tensors
        tensors, gradients = saved[: ctx.count], saved[ctx.count :]
        if torch.is_grad_enabled():  # create_graph=True: a second derivative needs the plain formula
            total = _formula(ctx.terms, tensors) * ctx.scale
            wanted = [tensor for tensor in tensors if tensor.requires_grad]
            found = iter(torch.autograd.grad(total, wanted, grad, create_graph=True))
            return None, None, *(next(found) if tensor.requires_grad else None for tensor in tensors)
        if grad.is_cpu and grad.item() == 1.0:  # as for a loss to which the KL is added
            return None, None, *gradients
        return None, None, *(g if g is None else g * grad.to(g.device, g.dtype) for g in gradients)


def _formula(terms: Sequence[KLTerm], tensors: Sequence[Tensor]) -> Tensor:
    pairs = zip(terms, _pairs(tensors), strict=True)
    return _sum([kl_sum_reference(*pair, *term) for term, pair in pairs])


def kl_total(terms: Sequence[KLTerm], tensors: Sequence[Tensor], scale: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """The KL divergence of several tensors of weights from their priors.

    Args:
        terms: Prior and factor of each tensor.
        tensors: The means and the log variances of each, alternating.
        scale: A factor on the result.

    Returns:
        ``scale`` times the sum over all weights, with its gradient; and the sum itself, detached.

    Example:
        >>> half, total = kl_total([KLTerm(Hierarchical())], [torch.ones(2), torch.zeros(2)], scale=0.5)
        >>> float(half), float(total)  # log(2) / 2 and log(2)
        (0.346..., 0.693...)
    """
    if torch.compiler.is_compiling() or transforms_are_on():
        pairs = zip(terms, _pairs(tensors), strict=True)
        total = _sum([_traced(term, *pair) for term, pair in pairs])
        return scaled(total, scale), total.detach()
    both: tuple[Tensor, Tensor] = _KLTotal.apply(terms, float(scale), *tensors)  # type: ignore[no-untyped-call]
    return both


def kl_sum(theta: Tensor, log_sigma2: Tensor, prior: Prior, factor: float | Tensor = 1.0) -> Tensor:
    """The KL divergence of all these weights from their prior: `vbdrop.functional.kl_sum_reference`, in one pass.

    Example:
        >>> float(kl_sum(torch.ones(2), torch.zeros(2), Hierarchical()))  # log(2) / 2 each
        0.693...
    """
    return kl_total([KLTerm(prior, factor)], [theta, log_sigma2])[0]
