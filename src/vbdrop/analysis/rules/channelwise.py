"""Operations with parameters of their own for each channel: batch normalisation and PReLU."""

import torch
from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts, Follower
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import arguments_of


def batch_norm(facts: ChannelFacts, node: fx.Node) -> list[Channels | None]:
    """Batch normalisation with running statistics: a scale and a shift for each channel."""
    call = arguments_of(node)
    mean, variance = facts.tensor(call["running_mean"]), facts.tensor(call["running_var"])
    if mean is None or variance is None:
        facts.keep(node, "its statistics are computed in the forward")
        return [None, None, None]
    channels = _followed(facts, node, call["input"], len(mean))
    if channels is None:
        return [None, None, None]
    weight, bias = facts.tensor(call["weight"]), facts.tensor(call["bias"])
    scale = torch.rsqrt(variance + call["eps"]) * (1.0 if weight is None else weight)
    shift = (0.0 if bias is None else bias) - mean * scale
    known = channels.known | (scale == 0)
    return [channels.with_values(known, channels.value * scale + shift), None, None]


def prelu(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A leaky ReLU with one learned slope, or one for each channel."""
    call = arguments_of(node)
    slope, channels = facts.tensor(call["weight"]), facts.channels(call["self"])
    if slope is None:
        facts.keep(node, "its slope is computed in the forward")
        return None
    if slope.numel() > 1:
        channels = _followed(facts, node, call["self"], slope.numel())
    if channels is None:
        return None
    sloped = torch.where(channels.value > 0, channels.value, channels.value * slope)
    return channels.with_values(channels.known, sloped)


def _followed(facts: ChannelFacts, node: fx.Node, source: fx.Node, count: int) -> Channels | None:
    """The channels that enter on axis 1, with every tensor of the node following them; None if it cannot."""
    tensors = [tensor for tensor in node.all_input_nodes if facts.name(tensor) is not None]
    channels = facts.channels(source) or facts.pinned_channels(1, count)
    reason = facts.why_fixed(*tensors)
    if reason is None and channels.axis != 1:
        reason = "its channels are not on axis 1"
    if reason is not None:
        facts.keep(node, reason)
        return None
    for tensor in tensors:
        name = facts.traced.names[tensor]
        facts.tie_tensor(name, 0, channels.units)
        facts.followers.append(Follower(node, name, 0, channels.units))
    return channels
