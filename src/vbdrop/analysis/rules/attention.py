"""Products of activations, as in attention: heads can be removed along an axis that both factors share.

Inside a head, a feature of queries and keys can be removed if it is zero in one of them, and a feature of the values if
nothing reads it.
"""

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import arguments_of, size_of
from vbdrop.analysis.head_blocks import HeadBlock, by_head, rows
from vbdrop.analysis.rules.parameters import parameter_channels
from vbdrop.analysis.rules.repeated_values import repeated_channels

SOFTMAX = ("softmax", "_softmax", "log_softmax", "_log_softmax")

MATRIX = 2
"""The number of axes of a matrix: a batched product works on this many last axes."""


def attend(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """Attention with the heads on the third axis from the end; with grouped heads, each key serves several queries."""
    call = arguments_of(node)
    sources = call["query"], call["key"], call["value"]
    ranks = {len(size_of(source)) for source in sources}
    rank = min(ranks)
    grids = [_grid(facts, source, (rank - 3, rank - 1)) if len(ranks) == 1 else None for source in sources]
    scored, values = _scored(facts, node, grids[0], grids[1], constant_keys=True), grids[2]
    if scored is None or values is None:
        facts.whole_heads.add(facts.module_path(node))
    split = [*(scored or (None, None)), None if values is None else _split(facts, node, values)]
    heads = [own or _along(facts, s, len(size_of(s)) - 3) for own, s in zip(split, sources, strict=True)]
    masks = _mask(facts, node, call.get("attn_mask"), len(heads[0] or ()))
    if None in heads or len(ranks) > 1:
        facts.keep(node, "it reads every channel of each head", report=False)
        return None
    if None in masks:
        facts.keep(node, "its mask has a slice for each head, and it is not known where they come from")
        return None
    queries, *others = (channels for channels in heads if channels is not None)
    for grouped in others:
        if len(queries) % len(grouped) or (len(grouped) < len(queries) and not call.get("enable_gqa")):
            facts.keep(node, "its heads are not in groups", report=False)
            return None
        facts.units.tie(queries.units, grouped.units.repeat_interleave(len(queries) // len(grouped)))
    for mask in filter(None, masks):
        facts.units.tie(queries.units, mask.units)
    if values is not None:
        return _attended(values, len(queries), (rank - 3, rank - 1))
    zero = (others[1].known & (others[1].value == 0)).repeat_interleave(len(queries) // len(others[1]))
    return queries.at(len(size_of(node)) - 3).with_values(zero, torch.zeros_like(queries.value))


def batched_product(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """A product of batches of matrices: channels on a shared batch axis are tied.

    The features of a head may be summed over, as in queries times keys, or come from the second factor, as in scores
    times values.
    """
    first, second = node.all_input_nodes if len(node.all_input_nodes) == MATRIX else (None, None)
    if first is None or second is None or len(size_of(first)) != len(size_of(second)):
        facts.keep(node, f"{node.target} reads every channel", report=False)
        return None
    rank = len(size_of(node))
    same_heads = rank > MATRIX and size_of(first)[rank - 3] == size_of(second)[rank - 3]
    left, right = _grid(facts, first, (rank - 3, rank - 1)), _grid(facts, second, (rank - 3, rank - 2))
    if same_heads and (heads := _scored(facts, node, left, right)) is not None:
        facts.units.tie(heads[0].units, heads[1].units)
        return heads[0]
    values, scores = _grid(facts, second, (rank - 3, rank - 1)), facts.by_node.get(first)
    if same_heads and isinstance(scores, Channels) and scores.axis == rank - 3 and values is not None:
        facts.units.tie(scores.units, _split(facts, node, values).units)
        return _attended(values, len(scores), (rank - 3, rank - 1))
    facts.whole_heads.add(facts.module_path(node))
    for axis in _axes(facts, first, second):
        if axis < len(size_of(node)) - MATRIX and size_of(first)[axis] == size_of(second)[axis]:
            one, other = _along(facts, first, axis), _along(facts, second, axis)
            if one is not None and other is not None:
                facts.units.tie(one.units, other.units)
                zero = (one.known & (one.value == 0)) | (other.known & (other.value == 0))
                return one.with_values(zero, torch.zeros_like(one.value))
    facts.keep(node, f"{node.target} reads every channel", report=False)
    return None


def _grid(facts: ChannelFacts, source: fx.Node, axes: tuple[int, int]) -> Channels | Grid | None:
    """The known facts about a value whose heads may lose features one by one; None for any other value."""
    allowed = facts.split_heads and axes[0] >= 0
    return rows(facts.by_node.get(source), axes, source) if allowed else None


def _scored(
    facts: ChannelFacts,
    node: fx.Node,
    queries: Channels | Grid | None,
    keys: Channels | Grid | None,
    *,
    constant_keys: bool = False,
) -> list[Channels] | None:
    """The heads of queries and keys that are multiplied, or None if heads can only be removed as a whole.

    A feature is removed from both or from neither; it is not read if it is zero in one of them.

    Args:
        facts: The forward pass.
        node: The product.
        queries: The known facts about the queries.
        keys: The same for the keys, each of which may serve several queries.
        constant_keys: Whether a constant in the keys has no effect, because it adds the same number to all scores of a
            query before the softmax.
    """
    if queries is None or keys is None:
        return None
    one, other = by_head(queries.units), by_head(keys.units)
    if len(one) % len(other) or one.shape[1] != other.shape[1]:
        return None
    each = len(one) // len(other)
    facts.units.tie(one.flatten(), other.repeat_interleave(each, 0).flatten())
    idle = by_head(keys.known & (constant_keys | (keys.value == 0))).repeat_interleave(each, 0)
    read = ~(idle | by_head(queries.known & (queries.value == 0)))
    return [_split(facts, node, queries, read), _split(facts, node, keys, read.view(len(other), each, -1).any(1))]


def _split(facts: ChannelFacts, node: fx.Node, grid: Channels | Grid, read: Tensor | None = None) -> Channels:
    """The heads of a value whose features may be removed one by one, as channels."""
    members = by_head(grid.units)
    heads = facts.units.new(len(members))
    facts.blocks.append(HeadBlock(facts.module_path(node), heads, members, read))
    return Channels.varying(len(size_of(node)) - 3, heads)


def _attended(values: Channels | Grid, heads: int, axes: tuple[int, int]) -> Channels | Grid:
    """The features that an attention returns: those of the values, repeated for each head of a group."""
    each = heads // len(by_head(values.units))
    units = by_head(values.units).repeat_interleave(each, 0)
    zero = by_head(values.known & (values.value == 0)).repeat_interleave(each, 0)
    value = torch.zeros(zero.shape, dtype=torch.float64)
    return Grid(axes, units, zero, value) if heads > 1 else Channels(axes[1], units[0], zero[0], value[0])


def softmax(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """A softmax along an axis other than the channel axis."""
    source = node.args[0]
    known = facts.by_node.get(source) if isinstance(source, fx.Node) else None
    axis = arguments_of(node)["dim"] % len(size_of(node))
    axes = known.axes if isinstance(known, Grid) else (known.axis,) if isinstance(known, Channels) else (axis,)
    if axis in axes or not isinstance(known, Channels | Grid):
        facts.keep(node, f"{node.target} reads every channel", report=False)
        return None
    return known.with_values(torch.zeros_like(known.known), known.value)


def _along(facts: ChannelFacts, node: fx.Node, axis: int) -> Channels | None:
    return facts.channels_along(node, axis) if axis >= 0 else None


def _axes(facts: ChannelFacts, *nodes: fx.Node) -> list[int]:
    """The axes on which all of these values have, or can have, channels."""
    found = [facts.by_node.get(node) for node in nodes]
    axes = [
        known.axes if isinstance(known, Grid) else (known.axis,)
        for known in found
        if isinstance(known, Channels | Grid)
    ]
    return sorted(set(axes[0]).intersection(*axes)) if len(axes) == len(nodes) else []


def _mask(facts: ChannelFacts, node: fx.Node, mask: object, heads: int) -> list[Channels | None]:
    """The channels of a mask that differs from head to head, or None if they are unknown."""
    size = size_of(mask) if isinstance(mask, fx.Node) else ()
    if not isinstance(mask, fx.Node) or heads <= 1 or len(size) <= MATRIX or size[-3] != heads:
        return []
    axis = len(size) - 3
    found = facts.channels_along(mask, axis) or parameter_channels(facts, node, mask, axis)
    return [found or repeated_channels(facts, mask, axis)]
