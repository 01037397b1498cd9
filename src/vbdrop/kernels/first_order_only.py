"""A guard for backward functions that cannot be differentiated again."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def first_order_only(backward: Callable[..., tuple[Tensor | None, ...]]) -> Callable[..., tuple[Tensor | None, ...]]:
    """Refuse to run if a second derivative may be requested, that is, under ``create_graph=True``.

    Torch's own `once_differentiable` lets such a call pass if the incoming gradient is a constant, as for a penalty on
    ``grad(out.sum(), x)``; the penalty would then silently have no effect.

    Args:
        backward: The backward of an autograd function.

    Returns:
        The same function, with the check before it.

    Example:
        >>> guarded = first_order_only(lambda ctx, grad: (grad,))
        >>> guarded(None, torch.ones(1))
        Traceback (most recent call last):
        RuntimeError: the fused layers of vbdrop have no second derivative ...
    """

    @wraps(backward)
    def checked(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused layers of vbdrop have no second derivative (create_graph=True); set `fused = False` on them "
                "for the plain formula, which has one."
            )
        return backward(ctx, *grads)

    return checked
