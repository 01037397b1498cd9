"""Norms and means over channels: those that are zero may go if the count stays."""

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import arguments_of, size_of
from vbdrop.analysis.rules.channelwise import followed, shifted


def norm_over_channels(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Layer and RMS normalisation over the last axis.

    A channel that is zero adds nothing to a sum over channels, but it counts: what is left is normalised as if it was
    still there. What comes out in its place is not zero, so it goes only if nothing reads that.
    """
    call = arguments_of(node)
    source, axis = call["input"], len(size_of(node)) - 1
    if len(call["normalized_shape"]) != 1 or not facts.counts(node):
        facts.keep(node, f"{node.target} reads every channel", report=False)
        return None
    channels = followed(facts, node, source, size_of(node)[axis], axis)
    if channels is None:
        return None
    read_with_count(facts, node, channels)
    return shifted(facts, node, channels, torch.zeros_like(channels.known))


def read_with_count(facts: ChannelFacts, node: fx.Node, channels: Channels) -> None:
    """Keep the channels that a sum needs: all that are not zero."""
    zero: Tensor = channels.known & (channels.value == 0)
    reason = f"{node.target} reads every channel that is not zero"
    facts.pinned.append(channels.units[~zero])
    facts.kept_for.append((channels.units[~zero], reason))
    if bool((channels.known & ~zero).any()):
        facts.left.setdefault(facts.place(node), reason)
    facts.counted[node] = channels
