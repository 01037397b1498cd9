"""An upper bound on a parameter from which the parameter can return."""

from typing import Any

import torch
from torch import Tensor

from vbdrop._torch_compat import forward_mode_is_on


class _UpperBounded(torch.autograd.Function):
    """Clamps the value; stops only the gradient that would push a value at the bound further out."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, bound: float) -> Tensor:
        return value.clamp_max(bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ANN401
        value, ctx.bound = inputs
        ctx.save_for_backward(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (value,) = ctx.saved_tensors
        outward = (value >= ctx.bound) & (grad < 0)  # descent goes against the gradient
        return grad.masked_fill(outward, 0.0), None


def upper_bounded(value: Tensor, bound: float | None) -> Tensor:
    """``min(value, bound)``, keeping the gradient that points back inside.

    A plain clamp has no gradient beyond its bound, so a parameter that crosses it once never returns.

    Args:
        value: The parameter.
        bound: Its largest allowed value, or None for no bound.

    Returns:
        The bounded value.

    Example:
        >>> upper_bounded(torch.tensor([-1.0, 2.0]), 0.0)
        tensor([-1.,  0.])
    """
    if bound is None:
        return value
    if forward_mode_is_on():  # forward mode has no gradient that could point back
        return value.clamp_max(bound)
    bounded: Tensor = _UpperBounded.apply(value, bound)  # type: ignore[no-untyped-call]
    return bounded
