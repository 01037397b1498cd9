"""Whether two models give the same outputs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3}
"""The largest difference, as a share of the largest output, that rounding explains."""

COARSE = 5e-2
"""The same for half precision."""


@torch.no_grad()
def disagreement(model: nn.Module, other: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Run two models on the same inputs.

    Args:
        model: The reference.
        other: The model that should give the same.
        args: Inputs by position.
        kwargs: Inputs by name.

    Returns:
        How the second differs from the first, or None if it does not.

    Example:
        >>> disagreement(nn.ReLU(), nn.Tanh(), (torch.tensor([1.0, -1.0]),), {})
        'its output differs by 0.762, where the largest is 1'
    """
    expected = pytree.tree_leaves(model(*args, **kwargs))
    try:
        found = pytree.tree_leaves(other(*args, **kwargs))
    except Exception as error:  # whatever a forward raises that does not hold any more
        return f"its forward fails: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
    if len(found) != len(expected):
        return f"it has {len(found)} outputs in the place of {len(expected)}"
    return next((said for pair in zip(expected, found, strict=True) if (said := _difference(*pair))), None)


def _difference(expected: object, found: object) -> str | None:
    if not isinstance(expected, Tensor):
        return None if expected == found else f"it returns {found!r} in the place of {expected!r}"
    if not isinstance(found, Tensor) or found.shape != expected.shape:
        return f"an output has the shape {list(getattr(found, 'shape', []))} in the place of {list(expected.shape)}"
    if not expected.is_floating_point():
        return None if torch.equal(expected, found) else "an output of whole numbers differs"
    largest = float(expected[expected.isfinite()].abs().max()) if expected.isfinite().any() else 0.0
    tolerance = TOLERANCES.get(expected.dtype, COARSE) * largest
    if torch.allclose(found, expected, rtol=0.0, atol=tolerance, equal_nan=True):
        return None
    return f"its output differs by {float((expected - found).abs().max()):.3g}, where the largest is {largest:.3g}"
