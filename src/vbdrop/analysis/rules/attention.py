"""Products of activations, as in attention: whole heads can be removed, along an axis that both factors share."""

import torch
from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import arguments_of, size_of
from vbdrop.analysis.rules.parameters import parameter_channels

SOFTMAX = ("softmax", "_softmax", "log_softmax", "_log_softmax")

MATRIX = 2
"""The number of axes of a matrix: the last axes of a batch, on which a product works."""


def attend(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Attention with the heads on the third axis from the end; with grouped heads, each key serves several queries."""
    call = arguments_of(node)
    sources = call["query"], call["key"], call["value"]
    heads = [_along(facts, source, len(size_of(source)) - 3) for source in sources]
    masks = _mask(facts, node, call.get("attn_mask"), len(heads[0] or ()))
    if None in heads or len({len(size_of(source)) for source in sources}) > 1 or None in masks:
        facts.keep(node, "it reads every channel of each head", report=False)
        return None
    queries, keys, values = (channels for channels in heads if channels is not None)
    for grouped in (keys, values):
        if len(queries) % len(grouped) or (len(grouped) < len(queries) and not call.get("enable_gqa")):
            facts.keep(node, "its heads are not in groups", report=False)
            return None
        facts.units.tie(queries.units, grouped.units.repeat_interleave(len(queries) // len(grouped)))
    for mask in filter(None, masks):
        facts.units.tie(queries.units, mask.units)
    zero = (values.known & (values.value == 0)).repeat_interleave(len(queries) // len(values))
    return queries.at(len(size_of(node)) - 3).with_values(zero, torch.zeros_like(queries.value))


def batched_product(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A product of batches of matrices: channels on a batch axis that both have are tied."""
    first, second = node.all_input_nodes if len(node.all_input_nodes) == MATRIX else (None, None)
    if first is None or second is None or len(size_of(first)) != len(size_of(second)):
        facts.keep(node, f"{node.target} reads every channel", report=False)
        return None
    for axis in _axes(facts, first, second):
        if axis < len(size_of(node)) - MATRIX and size_of(first)[axis] == size_of(second)[axis]:
            one, other = _along(facts, first, axis), _along(facts, second, axis)
            if one is not None and other is not None:
                facts.units.tie(one.units, other.units)
                zero = (one.known & (one.value == 0)) | (other.known & (other.value == 0))
                return one.with_values(zero, torch.zeros_like(one.value))
    facts.keep(node, f"{node.target} reads every channel", report=False)
    return None


def softmax(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """A softmax along an axis other than the channels'."""
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
    return [facts.channels_along(mask, axis) or parameter_channels(facts, node, mask, axis)]
