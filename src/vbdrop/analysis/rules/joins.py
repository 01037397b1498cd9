"""Operations on several tensors: arithmetic, selections and concatenation."""

from collections.abc import Mapping

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import WORTH_A_COPY, ChannelFacts, Scatter
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import arguments_of, is_tensor, size_of
from vbdrop.analysis.rules.parameters import parameter_channels
from vbdrop.analysis.rules.repeated_values import repeated_channels

ARITHMETIC = ("add", "sub", "rsub", "mul", "div", "maximum", "minimum")

OF_THREE = ("addcmul", "addcdiv", "lerp")
"""Arithmetic on three tensors, element by element."""

SELECTIONS = ("where", "masked_fill")
"""Operations that take each element from one of two tensors, selected by a third."""

Placed = dict[fx.Node, Channels]
"""The terms of an operation that share the channels of its result, with those channels."""


def combine(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """Elementwise operation with broadcasting: the channels of all terms are tied to those of the result."""
    terms: list[fx.Node] = [term for term in node.args if is_tensor(term)]  # type: ignore[misc]
    grid = _grid(facts, node, terms)
    if grid is not None:
        return grid
    placed: Placed = {term: channels for term in terms if (channels := _placed(facts, term, node)) is not None}
    axes = {channels.axis for channels in placed.values()}
    others = [term for term in terms if term not in placed]
    for term in others if len(axes) == 1 else ():
        (axis,) = axes
        if not _broadcasts(term, node, axis) and (found := _parameter(facts, node, term, axis)) is not None:
            placed[term] = found
    others = [term for term in terms if term not in placed]
    if len(axes) != 1 or not all(_broadcasts(term, node, axis) for term in others for axis in axes):
        facts.keep(node, "its terms do not have the same channels")
        return None
    for channels in filter(None, map(facts.channels, others)):
        facts.pin(channels)
    known, value = _values(node, placed)
    scattered = _scatter(facts, node, placed)
    if scattered is not None:
        facts.scatters.append(scattered)
        return scattered.outputs.with_values(known, value)
    first, *rest = placed.values()
    for other in rest:
        facts.units.tie(first.units, other.units)
    return first.with_values(known, value)


def _grid(facts: ChannelFacts, node: fx.Node, terms: list[fx.Node]) -> Grid | None:
    """The grid of the result, if all terms with channels have the same grid and the others broadcast along its axes.

    Otherwise the grids become channels on an axis along which the other terms have channels or broadcast.
    """
    grids = {term: known for term in terms if isinstance(known := facts.by_node.get(term), Grid)}
    if not grids:
        return None
    first = next(iter(grids.values()))
    same_size = all(_has_all(term, node, known.axes) for term, known in grids.items())
    same = all(known.axes == first.axes and known.units.shape == first.units.shape for known in grids.values())
    others = [term for term in terms if term not in grids]
    fitting = [axis for axis in first.axes if all(_broadcasts(term, node, axis) for term in others)]
    if same_size and same and len(fitting) == len(first.axes):
        for known in grids.values():
            facts.units.tie(first.units.flatten(), known.units.flatten())
        return first.with_values(*_values(node, grids))
    given = [known.axis for term in terms if isinstance(known := facts.by_node.get(term), Channels)]
    for axis in [axis for axis in (*given, *fitting) if same_size and axis in first.axes][:1]:
        for term in grids:
            facts.channels_along(term, axis)
    return None


def _has_all(term: fx.Node, node: fx.Node, axes: tuple[int, ...]) -> bool:
    """Whether a term has as many axes as the result and is not broadcast along the given axes."""
    own, size = size_of(term), size_of(node)
    return len(own) == len(size) and all(own[axis] == size[axis] for axis in axes)


def _parameter(facts: ChannelFacts, node: fx.Node, term: fx.Node, axis: int) -> Channels | None:
    """The channels of a parameter, on their axis in the result."""
    shift = len(size_of(node)) - len(size_of(term))
    if facts.channels(term) is not None or size_of(term)[axis - shift] != size_of(node)[axis]:
        return None
    found = parameter_channels(facts, node, term, axis - shift) or repeated_channels(facts, term, axis - shift)
    return None if found is None else found.at(axis)


def stack(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Stack tensors along a new axis: their channels are tied."""
    call = arguments_of(node)
    dim = call["dim"] % len(size_of(node))
    parts = [facts.channels(term) for term in call["tensors"]]
    present = [part for part in parts if part is not None]
    if not present or len(present) < len(parts) or len({part.axis for part in present}) > 1:
        facts.keep(node, "it joins tensors that do not have the same channels")
        return None
    return _tied(facts, present, present[0].axis + (dim <= present[0].axis))


def overwrite(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A slice that is replaced (`x[:, a:b] = y`): its channels are replaced by the new ones, or tied to them."""
    call = arguments_of(node)
    base, new = facts.channels(call["self"]), facts.channels(call["src"])
    dim = call["dim"] % len(size_of(node))
    along = base is not None and dim == base.axis
    if base is None or new is None or base.axis != new.axis or (along and (call["step"] != 1 or not facts.rewrite)):
        facts.keep(node, "part of it is replaced by other channels")
        return None
    if not along:
        return _tied(facts, [base, new], base.axis)
    where = torch.arange(len(base))[slice(call["start"], call["end"], call["step"])]
    fields = []
    for own, other in zip((base.units, base.known, base.value), (new.units, new.known, new.value), strict=True):
        fields.append(own.clone().index_copy_(0, where, other))
    return Channels(base.axis, *fields)


def copy(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """The new value replaces the old one, which is not read."""
    old, new = node.args[0], node.args[1]
    if size_of(old) != size_of(new) or old.meta["val"].dtype != new.meta["val"].dtype:  # type: ignore
        facts.keep(node, "it is overwritten by a value of a different size or dtype")
        return None
    known = facts.by_node.get(new)  # type: ignore[arg-type]
    return known if isinstance(known, Channels | Grid) else None


def _tied(facts: ChannelFacts, parts: list[Channels], axis: int) -> Channels:
    """Channels that several tensors share; they are constant where all tensors have the same constant."""
    first = parts[0]
    for other in parts[1:]:
        facts.units.tie(first.units, other.units)
    same = torch.stack([part.known & (part.value == first.value) for part in parts]).all(0)
    return first.at(axis).with_values(same, first.value)


def concatenate(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """The channels are concatenated or, along another axis, tied to each other."""
    call = arguments_of(node)
    dim = call["dim"] % len(size_of(node))
    terms = [term for term in call["tensors"] if size_of(term) != (0,)]  # torch ignores such terms on any axis
    parts = [facts.channels(term) for term in terms]
    present = [part for part in parts if part is not None]
    if present and len(present) < len(parts) and len({part.axis for part in present} - {dim}) == 1:
        axis = present[0].axis  # such as the class token before the patches
        parts = [part or parameter_channels(facts, node, term, axis) for term, part in zip(terms, parts, strict=True)]
        present = [part for part in parts if part is not None]
    if present and all(part.axis == dim for part in present):
        # a term with unknown channels keeps all of them
        full = [facts.channels(term) or facts.pinned_channels(dim, size_of(term)[dim]) for term in terms]
        fields = ("units", "known", "value")
        return Channels(dim, *(torch.cat([getattr(part, field) for part in full]) for field in fields))
    if not present or len(present) < len(parts) or len({(part.axis, len(part)) for part in present}) > 1:
        facts.keep(node, "it joins tensors that do not have the same channels")
        return None
    return _tied(facts, present, present[0].axis)


def _placed(facts: ChannelFacts, term: fx.Node, node: fx.Node) -> Channels | None:
    """The channels of a term on their axis in the result; None if the term is broadcast along that axis."""
    channels = facts.channels(term)
    if channels is None:
        return None
    size = size_of(node)
    axis = channels.axis + len(size) - len(size_of(term))
    return channels.at(axis) if size[axis] == len(channels) else None


def _broadcasts(term: fx.Node, node: fx.Node, axis: int) -> bool:
    """Whether a term has one value for all channels of the result."""
    size = size_of(term)
    own_axis = axis - len(size_of(node)) + len(size)
    return own_axis < 0 or size[own_axis] == 1


def _values(node: fx.Node, placed: Mapping[fx.Node, Channels | Grid]) -> tuple[Tensor, Tensor]:
    """Which channels of the result are constant, and their values; a product with zero is always zero."""
    found = list(placed.values())
    known, value = torch.stack([channels.known for channels in found]).all(0), found[0].value
    if _operation(node) in OF_THREE:
        return torch.zeros_like(known), value
    if _operation(node) in SELECTIONS:
        known, value = _selected(node, placed, value)
    elif all(term in placed for term in node.args[:2] if isinstance(term, fx.Node)):
        terms = [placed[term].value if isinstance(term, fx.Node) else term for term in node.args[:2]]
        value = node.target(*terms, **node.kwargs)  # type: ignore[operator]  # an OpOverload
        known = known & value.isfinite()
    else:
        known = torch.zeros_like(known)
    if _operation(node) == "mul":
        zero = torch.stack([channels.known & (channels.value == 0) for channels in found]).any(0)
        known, value = known | zero, torch.where(zero, 0.0, value)
    return known, value


def _selected(node: fx.Node, placed: Mapping[fx.Node, Channels | Grid], like: Tensor) -> tuple[Tensor, Tensor]:
    """The constants of a selection: channels for which both sides are the same constant."""
    sides = node.args[1:3] if _operation(node) == "where" else (node.args[0], node.args[2])
    known = torch.ones_like(like, dtype=torch.bool)
    values: list[Tensor] = []
    for side in sides:
        channels = placed.get(side) if isinstance(side, fx.Node) else None
        if channels is not None:
            known, values = known & channels.known, [*values, channels.value]
        elif isinstance(side, int | float):
            values.append(torch.full_like(like, float(side)))
        else:
            known = torch.zeros_like(known)
    return (known & (values[0] == values[-1]), values[0]) if values else (torch.zeros_like(known), like)


def _scatter(facts: ChannelFacts, node: fx.Node, placed: Placed) -> Scatter | None:
    """Allow terms with constants to be smaller than the sum if that is worth a copy."""
    is_sum = _operation(node) == "add" and node.kwargs.get("alpha", 1) == 1
    if not (facts.rewrite and is_sum and len(placed) == 2 and all(size_of(term) == size_of(node) for term in placed)):
        return None
    parts = {term: part for term, part in placed.items() if part.known.double().mean() >= WORTH_A_COPY}
    if len(parts) == 2:
        first = next(iter(parts.values()))
        return Scatter(node, parts, None, Channels.varying(first.axis, facts.units.new(len(first))))
    base = next((term for term in placed if term not in parts), None)
    return Scatter(node, parts, base, placed[base]) if parts and base is not None else None


def _operation(node: fx.Node) -> str:
    return str(node.target.overloadpacket.__name__)  # type: ignore[union-attr]
