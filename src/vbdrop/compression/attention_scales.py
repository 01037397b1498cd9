"""Whether the original forward still scales its attention scores as before, after heads have lost features."""

from collections.abc import Mapping
from typing import Any

from torch import fx, nn

from vbdrop._torch_compat import OpOverload
from vbdrop.analysis.graph import Traced, TraceError, arguments_of, size_of, trace

WHOLE = ("mul", "div", "pow", "full", "scalar_tensor")
"""Operations whose integer arguments are compared too; the integers of other operations are axes and sizes."""


def new_scale(traced: Traced, small: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Why a small model differs from the traced one: a number in its forward depends on the size of its heads.

    A trial on a few inputs may miss this if scores are small.

    Args:
        traced: The graph of the model before compression.
        small: The small model, with its original forward.
        args: Example inputs by position.
        kwargs: Example inputs by name.

    Example:
        >>> import torch
        >>> from vbdrop.analysis.graph import trace
        >>> class Scaled(nn.Module):
        ...     def forward(self, x):
        ...         return x * x.shape[-1] ** -0.5
        >>> before = trace(Scaled(), (torch.zeros(2, 4),))
        >>> new_scale(before, Scaled(), (torch.zeros(2, 4),), {})
        >>> new_scale(before, Scaled(), (torch.zeros(2, 3),), {})
        'it scales by 0.577 instead of 0.5, since that depends on the number of features of a head'
    """
    try:
        after = trace(small, args, kwargs)
    except TraceError as error:
        return f"its forward cannot be traced: {error}".rstrip(".")
    before, now = _numbers(traced), _numbers(after)
    if len(before) != len(now):
        return "its forward has different operations"
    pairs = [(one, other) for one, other in zip(before, now, strict=True) if one != other]
    if not pairs:
        return None
    wanted, found = pairs[0]
    return f"it scales by {found:.3g} instead of {wanted:.3g}, since that depends on the number of features of a head"


def _numbers(traced: Traced) -> list[float]:
    """The numbers that operations compute with, in order, and those that the forward creates as tensors."""
    created = [float(tensor) for tensor in traced.constants.values() if tensor.numel() == 1]
    return [*created, *(number for node in traced.graph.nodes for number in _of_node(node))]


def _of_node(node: fx.Node) -> list[float]:
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return []
    name = node.target.overloadpacket.__name__
    if name == "scaled_dot_product_attention":
        call = arguments_of(node)
        return [size_of(call["query"])[-1] ** -0.5 if call["scale"] is None else float(call["scale"])]
    found = [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, int | float)]
    return [float(value) for value in found if isinstance(value, float) or (type(value) is int and name in WHOLE)]
