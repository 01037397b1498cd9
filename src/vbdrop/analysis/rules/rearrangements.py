"""Operations that combine or regroup channels: GLU, pixel shuffle, channel shuffle."""

import torch
from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import arguments_of, size_of


def glu(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """The first half times the sigmoid of the second: the channels of both halves are tied."""
    channels, call = facts.channels(node.args[0]), arguments_of(node)
    if channels is None:
        return None
    axis = call["dim"] % len(size_of(node))
    zero = channels.known & (channels.value == 0)
    if channels.axis != axis:
        return channels.with_values(zero, torch.zeros_like(channels.value))
    half = len(channels) // 2
    first, second = (channels.take(torch.arange(start, start + half), axis) for start in (0, half))
    facts.units.tie(first.units, second.units)
    value = first.value * second.value.sigmoid()
    return first.with_values((first.known & second.known) | zero[:half], value)


def pixel_shuffle(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """The channels of a block become pixels of one channel."""
    size, axis = arguments_of(node)["upscale_factor"] ** 2, len(size_of(node)) - 3
    channels = _channels(facts, node, axis)
    if channels is None:
        return None
    fields = (getattr(channels, field).view(-1, size) for field in ("units", "known", "value"))
    return Grid((axis, axis + 1), *fields).along(axis, facts.units)


def pixel_unshuffle(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """The pixels of a block become channels."""
    size, axis = arguments_of(node)["downscale_factor"] ** 2, len(size_of(node)) - 3
    channels = _channels(facts, node, axis)
    if channels is None:
        return None
    return channels.take(torch.arange(len(channels)).repeat_interleave(size), axis)


def channel_shuffle(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Interleave the channels of several groups; all groups keep the same ones."""
    groups = arguments_of(node)["groups"]
    channels = _channels(facts, node, 1)
    if channels is None:
        return None
    rows = channels.units.view(groups, -1)
    facts.units.tie(rows[:1].expand_as(rows).flatten(), rows.flatten())
    return channels.take(torch.arange(len(channels)).view(groups, -1).t().flatten(), 1)


def _channels(facts: ChannelFacts, node: fx.Node, axis: int) -> Channels | None:
    """The input channels on an axis; if they are unknown, all of them are kept and the result is None."""
    channels = facts.channels_along(node.args[0], axis)  # type: ignore[arg-type]
    if channels is None:
        facts.keep(node, "its channels are not known", report=False)
    return channels
