"""Operations on several tensors: arithmetic and concatenation."""

from typing import Any

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import WORTH_A_COPY, ChannelFacts, Scatter
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import arguments_of, is_tensor, size_of

ARITHMETIC = ("add", "sub", "rsub", "mul", "div", "maximum", "minimum")

Placed = dict[fx.Node, Channels]
"""The terms of an operation that have the channels of its result, with those channels."""


def combine(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Element by element, with broadcasting: the channels of all terms are tied to those of the result."""
    terms: list[Any] = [term for term in node.args[:2] if is_tensor(term)]
    placed: Placed = {term: channels for term in terms if (channels := _placed(facts, term, node)) is not None}
    others = [term for term in terms if term not in placed]
    axes = {channels.axis for channels in placed.values()}
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


def concatenate(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Channels one after the other or, along another axis, tied to each other."""
    call = arguments_of(node)
    dim = call["dim"] % len(size_of(node))
    terms = [term for term in call["tensors"] if size_of(term) != (0,)]  # torch passes over such terms of any axis
    parts = [facts.channels(term) for term in terms]
    present = [part for part in parts if part is not None]
    if present and all(part.axis == dim for part in present):
        # a term whose channels are not known takes part with all of them
        full = [facts.channels(term) or facts.pinned_channels(dim, size_of(term)[dim]) for term in terms]
        fields = ("units", "known", "value")
        return Channels(dim, *(torch.cat([getattr(part, field) for part in full]) for field in fields))
    if not present or len(present) < len(parts) or len({(part.axis, len(part)) for part in present}) > 1:
        facts.keep(node, "it joins tensors that do not have the same channels")
        return None
    first = present[0]
    for other in present[1:]:
        facts.units.tie(first.units, other.units)
    same = torch.stack([part.known & (part.value == first.value) for part in present]).all(0)
    return first.with_values(same, first.value)


def _placed(facts: ChannelFacts, term: fx.Node, node: fx.Node) -> Channels | None:
    """The channels of a term on the axis that they have in the result; None if it is broadcast along that axis."""
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


def _values(node: fx.Node, placed: Placed) -> tuple[Tensor, Tensor]:
    """The constants of the result; a product with zero is zero whatever the other factor is."""
    found = list(placed.values())
    known, value = torch.stack([channels.known for channels in found]).all(0), found[0].value
    if all(term in placed for term in node.args[:2] if isinstance(term, fx.Node)):
        terms = [placed[term].value if isinstance(term, fx.Node) else term for term in node.args[:2]]
        value = node.target(*terms, **node.kwargs)  # type: ignore[operator]  # an OpOverload
    else:
        known = torch.zeros_like(known)
    if _operation(node) == "mul":
        zero = torch.stack([channels.known & (channels.value == 0) for channels in found]).any(0)
        known, value = known | zero, torch.where(zero, 0.0, value)
    return known, value


def _scatter(facts: ChannelFacts, node: fx.Node, placed: Placed) -> Scatter | None:
    """Let terms with constants be smaller than the sum, where that is worth a copy."""
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
