"""Whether the original forward of a small model still computes what it did: with the planned sizes, and no new numbers.

A forward that computes sizes or factors from the number of channels may run without an error and still do something
else: ``x.view(batch, length, self.h, -1)`` regroups the features of the remaining heads, and ``x.shape[1] ** 0.5`` is a
new factor. Outputs for a few inputs do not always show it, for instance if the scores of an attention are small, so the
small model is traced again and compared with the plan, operation by operation.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import fx, nn

from vbdrop._torch_compat import OpOverload
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import Traced, TraceError, arguments_of, concrete, is_tensor, size_of, trace
from vbdrop.analysis.liveness import Liveness
from vbdrop.analysis.norm_sites import module_path

LAYOUT = ("view", "_unsafe_view", "reshape", "clone", "contiguous", "alias", "expand", "lift_fresh_copy", "select")
"""Operations that move or pick values at most; torch may add or drop them if an axis has become one long, and states
of a recurrent layer of unequal sizes are picked from a list."""

SIZES = (
    *("slice", "split", "split_with_sizes", "chunk", "narrow", "arange", "unfold", "repeat_interleave"),
    *("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("group_norm", "native_group_norm", "channel_shuffle", "unflatten", "sym_size"),
)
"""Operations whose integers are sizes, positions and groups, which may follow the number of channels; the sizes of
their results are compared."""

FILLED = ("zeros", "ones", "full", "empty")
"""Operations that create tensors of one value: what is computed from these shows whether their sizes are right."""


def changed_computation(
    traced: Traced,
    liveness: Liveness,
    small: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> str | None:
    """Why a small model does not compute what its plan says; None if it does.

    Left out are vbdrop's own modules, which follow their sizes (normalisations that count removed channels, recurrent
    layers of unequal sizes, opened attentions), and torch's recurrent layers.

    Args:
        traced: The graph of the model before compression.
        liveness: What the plan keeps.
        small: The small model, with its original forward.
        args: Example inputs by position.
        kwargs: Example inputs by name.

    Example:
        >>> import torch
        >>> from vbdrop.analysis.constant_channels import propagate
        >>> from vbdrop.analysis.liveness import find_live
        >>> class Scaled(nn.Module):
        ...     def forward(self, x):
        ...         return x * x.shape[-1] ** -0.5
        >>> before = trace(Scaled(), (torch.zeros(2, 4),))
        >>> live = find_live(propagate(before, Scaled()))
        >>> changed_computation(before, live, Scaled(), (torch.zeros(2, 4),), {})
        >>> changed_computation(before, live, Scaled(), (torch.zeros(2, 3),), {})
        'it computes with 0.577 instead of 0.5, which depends on the number of channels (mul)'
    """
    try:
        after = trace(small, args, kwargs)
    except TraceError as error:
        return f"its forward cannot be traced: {error}".rstrip(".")
    left_out = tuple(
        path
        for path, module in small.named_modules(remove_duplicate=False)
        if isinstance(module, nn.RNNBase) or type(module).__module__.startswith("vbdrop.layers.")
    )
    before, now = (list(_operations(graph.graph, left_out)) for graph in (traced, after))
    names = zip_longest(map(_name, before), map(_name, now), fillvalue="nothing")
    if differs := next((pair for pair in names if pair[0] != pair[1]), None):
        return f"its forward has different operations: {differs[1]} instead of {differs[0]}"
    created = [[float(t) for t in each.constants.values() if t.numel() == 1] for each in (traced, after)]
    if len(created[0]) == len(created[1]) and created[0] != created[1]:
        return _new_number(created[0], created[1], "a tensor that the forward creates")
    for one, other in zip(before, now, strict=True):
        numbers = _numbers(one), _numbers(other)
        if numbers[0] != numbers[1]:
            return _new_number(*numbers, _name(one))
        wanted = _planned_size(one, liveness)
        if wanted is not None and is_tensor(other) and size_of(other) != wanted:
            place = module_path(one)
            where = f"{_name(one)} in {place}" if place else _name(one)
            return f"a tensor has the shape {list(size_of(other))} instead of {list(wanted)} ({where})"
        if _name(one) == "slice" and _takes_other_channels(one, other, liveness):
            return "it takes other channels, since it counts them from the first one (slice)"
    return None


def _operations(graph: fx.Graph, left_out: tuple[str, ...]) -> Iterator[fx.Node]:
    """The operations of the model's own modules, except for those that only move values."""
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload) or _name(node) in LAYOUT:
            continue
        path = module_path(node)
        if not any(path == each or path.startswith(f"{each}.") for each in left_out):
            yield node


def _name(node: fx.Node) -> str:
    return str(node.target.overloadpacket.__name__)  # type: ignore[union-attr]  # an operation


def _planned_size(node: fx.Node, liveness: Liveness) -> tuple[int, ...] | None:
    """The shape of an operation's result according to the plan; None if there is none, or it is not known."""
    if not is_tensor(node) or _name(node) in FILLED:
        return None
    sizes, known = list(size_of(node)), liveness.facts.by_node.get(node)
    if isinstance(known, Channels):
        sizes[known.axis] = int(liveness.kept(known).sum())
    elif isinstance(known, Grid):
        for axis, size in zip(known.axes, liveness.kept_along(known), strict=True):
            sizes[axis] = size
    elif known is not None:
        return None
    return tuple(sizes)


def _takes_other_channels(one: fx.Node, other: fx.Node, liveness: Liveness) -> bool:
    """Whether a slice of the channels, in the small model, takes others than those that are left of the original's."""
    call = arguments_of(one)
    known = liveness.facts.by_node.get(call["self"])
    if not isinstance(known, Channels) or call["dim"] % len(size_of(call["self"])) != known.axis:
        return False
    kept = liveness.kept(known)
    places = torch.arange(len(kept), device=kept.device)
    planned = [place for place in places[_range(one)].tolist() if kept[place]]
    return bool(places[kept][_range(other)].tolist() != planned)


def _range(node: fx.Node) -> slice:
    call = arguments_of(node)
    return slice(*(concrete(call[name]) for name in ("start", "end", "step")))


def _numbers(node: fx.Node) -> list[float]:
    """The numbers that an operation computes with."""
    call, name = arguments_of(node), _name(node)
    if name == "scaled_dot_product_attention" and call["scale"] is None:
        return [size_of(call["query"])[-1] ** -0.5]
    found = [concrete(value) for value in call.values() if not is_tensor(value)]
    whole = name not in SIZES
    return [float(value) for value in found if isinstance(value, float) or (whole and type(value) is int)]


def _new_number(before: Sequence[float], now: Sequence[float], where: str) -> str:
    pairs = zip(before, now, strict=False)
    wanted, found = next((pair for pair in pairs if pair[0] != pair[1]), (len(before), len(now)))
    return f"it computes with {found:.3g} instead of {wanted:.3g}, which depends on the number of channels ({where})"
