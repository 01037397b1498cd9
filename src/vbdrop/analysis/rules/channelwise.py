"""Operations with separate parameters for each channel: batch and instance normalisation, and PReLU."""

import torch
from torch import Tensor, fx, nn

from vbdrop.analysis.channel_facts import ChannelFacts, Facts, Follower
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import arguments_of, size_of


def batch_norm(facts: ChannelFacts, node: fx.Node) -> Facts:
    """Batch normalisation with running statistics: a scale and a shift for each channel."""
    call = arguments_of(node)
    mean, variance = facts.tensor(call["running_mean"]), facts.tensor(call["running_var"])
    if mean is None or variance is None:
        facts.keep(node, "its statistics are computed in the forward")
        return [None, None, None]
    channels = followed(facts, node, call["input"], len(mean))
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
        channels = followed(facts, node, call["self"], slope.numel())
    if channels is None:
        return None
    sloped = torch.where(channels.value > 0, channels.value, channels.value * slope)
    return channels.with_values(channels.known, sloped)


def instance_norm(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Instance normalisation: each channel has its own mean and variance; a zero channel becomes its bias."""
    call = arguments_of(node)
    if not call["use_input_stats"]:
        facts.keep(node, "its statistics are not computed from the input")
        return None
    channels = followed(facts, node, call["input"], size_of(node)[1])
    return None if channels is None else shifted(facts, node, channels, channels.known & (channels.value == 0))


def norm_of_groups(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Normalisation of several groups of channels; only whole groups are removed."""
    call, module = arguments_of(node), facts.model.get_submodule(facts.module_path(node))
    if not isinstance(module, nn.GroupNorm):
        facts.keep(node, "group_norm outside of a GroupNorm reads every channel")
        return None
    channels = followed(facts, node, call["input"], size_of(node)[1])
    if channels is None:
        return None
    rows = channels.units.view(call["num_groups"], -1)
    facts.units.tie(rows[:, :1].expand_as(rows).flatten(), rows.flatten())
    facts.group_norms[node] = channels
    zero = (channels.known & (channels.value == 0)).view_as(rows).all(1, keepdim=True).expand_as(rows).flatten()
    if rows.shape[1] > 1 and bool((channels.known.view_as(rows) != zero.view_as(rows)).any()):
        facts.left.setdefault(facts.place(node), "group_norm reads every channel of a group, and not all are zero")
    return shifted(facts, node, channels, zero)


def shifted(facts: ChannelFacts, node: fx.Node, channels: Channels, zero: Tensor) -> Channels:
    """The output channels of a normalisation; those that are normalised to zero, or scaled by zero, equal the bias."""
    call = arguments_of(node)
    scale, shift = facts.tensor(call["weight"]), facts.tensor(call.get("bias"))
    known = zero if scale is None else zero | (scale == 0)
    return channels.with_values(known, torch.zeros_like(channels.value) if shift is None else shift)


def followed(facts: ChannelFacts, node: fx.Node, source: fx.Node, count: int, axis: int = 1) -> Channels | None:
    """The input channels on an axis, after tying every parameter of the node to them; None if that is impossible."""
    tensors = [tensor for tensor in node.all_input_nodes if facts.name(tensor) is not None]
    channels = facts.channels_along(source, axis) or facts.channels(source) or facts.pinned_channels(axis, count)
    reason = facts.why_fixed(*tensors) if tensors else None
    if reason is None and channels.axis != axis:
        reason = f"its channels are not on axis {axis}"
    if reason is not None:
        facts.keep(node, reason)
        return None
    for tensor in tensors:
        name = facts.traced.names[tensor]
        facts.tie_tensor(name, 0, channels.units)
        facts.followers.append(Follower(node, name, 0, channels.units))
    return channels
