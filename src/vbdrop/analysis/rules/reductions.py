"""Norms and means over channels: zero channels may be removed if they are still counted."""

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import arguments_of, size_of
from vbdrop.analysis.rules.channelwise import followed, norm_of_groups, shifted


def norm_over_channels(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Layer and RMS normalisation over the last axis.

    A zero channel adds nothing to a sum over channels, but it counts: the others are normalised as if it were still
    there. Layer normalisation maps it to a nonzero value, so it is removed only if nothing reads that value.
    """
    call = arguments_of(node)
    source, axis = call["input"], len(size_of(node)) - 1
    if len(call["normalized_shape"]) != 1 or not facts.counts(node):
        facts.keep(node, f"{node.target} reads every channel", report=False)
        return None
    return _counted(facts, node, source, axis, centres="layer_norm" in str(node.target))


def group_norm(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Group normalisation: whole groups of channels are removed; with one group it is a norm over all channels."""
    call = arguments_of(node)
    if call["num_groups"] > 1:
        return norm_of_groups(facts, node)
    if not facts.counts(node):
        facts.keep(node, "group_norm with one group reads every channel")
        return None
    return _counted(facts, node, call["input"], 1, centres=True)


def _counted(facts: ChannelFacts, node: fx.Node, source: fx.Node, axis: int, *, centres: bool) -> Channels | None:
    """The output channels of a norm over channels; a zero input channel stays zero only if the norm does not centre."""
    channels = followed(facts, node, source, size_of(node)[axis], axis)
    if channels is None:
        return None
    read_with_count(facts, node, channels)
    zero = torch.zeros_like(channels.known) if centres else channels.known & (channels.value == 0)
    return shifted(facts, node, channels, zero)


def read_with_count(facts: ChannelFacts, node: fx.Node, channels: Channels) -> None:
    """Keep the channels that a sum over channels needs: all that are not zero."""
    zero: Tensor = channels.known & (channels.value == 0)
    reason = f"{node.target} reads every channel that is not zero"
    facts.need_all(node, channels.units[~zero], reason)
    if bool((channels.known & ~zero).any()):
        facts.left.setdefault(facts.place(node), reason)
    facts.counted[node] = channels


def variance(facts: ChannelFacts, node: fx.Node) -> None:
    """The variance and the mean over channels inside a normalisation module."""
    channels, site = facts.channels(node.args[0]), facts.norm_site(node)
    dims = len(size_of(node.args[0]))  # type: ignore[arg-type]
    over = [axis % dims for axis in arguments_of(node)["dim"] or ()]
    with_positions = site is not None and site.kind == "group"
    wanted = [] if channels is None else list(range(1, dims)) if with_positions else [channels.axis]
    if channels is None or over != wanted or site is None or not facts.keeps_modules:
        facts.keep(node, f"{node.target} reads every channel", report=False)
    else:
        read_with_count(facts, node, channels)
