"""Operations with parameters of their own for each channel: batch normalisation and PReLU."""

import torch
from torch import fx

from vbdrop.compression.channels import Channels
from vbdrop.compression.flow import Flow, Follower
from vbdrop.compression.graph import arguments_of


def batch_norm(flow: Flow, node: fx.Node) -> list[Channels | None]:
    """Batch normalisation with running statistics: a scale and a shift for each channel."""
    call = arguments_of(node)
    mean, variance = flow.tensor(call["running_mean"]), flow.tensor(call["running_var"])
    if mean is None or variance is None:
        flow.keep(node, "its statistics are computed in the forward")
        return [None, None, None]
    channels = _followed(flow, node, call["input"], len(mean))
    if channels is None:
        return [None, None, None]
    weight, bias = flow.tensor(call["weight"]), flow.tensor(call["bias"])
    scale = torch.rsqrt(variance + call["eps"]) * (1.0 if weight is None else weight)
    shift = (0.0 if bias is None else bias) - mean * scale
    known = channels.known | (scale == 0)
    return [channels.with_values(known, channels.value * scale + shift), None, None]


def prelu(flow: Flow, node: fx.Node) -> Channels | None:
    """A leaky ReLU with one learned slope, or one for each channel."""
    call = arguments_of(node)
    slope, channels = flow.tensor(call["weight"]), flow.channels(call["self"])
    if slope is None:
        flow.keep(node, "its slope is computed in the forward")
        return None
    if slope.numel() > 1:
        channels = _followed(flow, node, call["self"], slope.numel())
    if channels is None:
        return None
    sloped = torch.where(channels.value > 0, channels.value, channels.value * slope)
    return channels.with_values(channels.known, sloped)


def _followed(flow: Flow, node: fx.Node, source: fx.Node, count: int) -> Channels | None:
    """The channels that enter on axis 1, with every tensor of the node following them; None if it cannot."""
    tensors = [tensor for tensor in node.all_input_nodes if flow.name(tensor) is not None]
    channels = flow.channels(source) or flow.pinned_channels(1, count)
    reason = flow.why_fixed(*tensors)
    if reason is None and channels.axis != 1:
        reason = "its channels are not on axis 1"
    if reason is not None:
        flow.keep(node, reason)
        return None
    for tensor in tensors:
        name = flow.traced.names[tensor]
        flow.tie_tensor(name, 0, channels.units)
        flow.followers.append(Follower(node, name, 0, channels.units))
    return channels
