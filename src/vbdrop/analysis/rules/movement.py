"""Operations that only move elements: views, permutations, slices, splits.

The rule runs the operation itself on the numbers of the channels, and then looks along which axis they lie.
"""

from typing import Any

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import ChannelFacts, Facts
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import arguments_of, concrete, size_of

VIEWS = ("view", "reshape", "_unsafe_view", "expand")
"""Operations that spell out the sizes of their result."""

MOVEMENTS = (
    *VIEWS,
    *("permute", "transpose", "t", "squeeze", "unsqueeze", "flip", "repeat"),
    *("slice", "select", "split", "split_with_sizes", "unbind"),
)


def move(facts: ChannelFacts, node: fx.Node) -> Facts:
    """Find the axis on which the channels lie afterwards, or keep them all if they lie on several."""
    source = node.args[0]
    channels = facts.channels(source)
    if channels is None or not isinstance(source, fx.Node):
        return None
    if _is_fixed(facts, node, channels):
        facts.keep(node, f"{node.target} spells out the number of channels")
        return None
    numbers = _numbered(size_of(source), channels.axis)
    is_view = node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
    # the numbers, which take no memory, have no strides to view
    operation: Any = torch.ops.aten.reshape.default if is_view else node.target
    moved = operation(numbers, *concrete(node.args[1:]), **node.kwargs)
    parts = [moved] if isinstance(moved, Tensor) else list(moved)
    found = [_located(part, numbers, channels) for part in parts]
    if None in found:
        facts.keep(node, f"{node.target} spreads channels over several axes", report=len(channels) > 1)
        return None
    return found[0] if isinstance(moved, Tensor) else list(found)


def _numbered(size: tuple[int, ...], axis: int) -> Tensor:
    """A tensor of this size that holds at each place the number of its channel (without taking memory for it)."""
    shape = [1] * len(size)
    shape[axis] = size[axis]
    return torch.arange(size[axis]).view(shape).expand(size)


def _located(part: Tensor, numbers: Tensor, channels: Channels) -> Channels | None:
    """The channels of a moved tensor, if they lie along one axis of it."""
    axes = [axis for axis in range(part.dim()) if not bool((part == part.narrow(axis, 0, 1)).all())]
    if not axes and part.dim() == numbers.dim() and part.shape[channels.axis] == 1:
        axes = [channels.axis]  # a slice of a single channel
    if len(axes) != 1:
        return None
    index = tuple(slice(None) if axis == axes[0] else 0 for axis in range(part.dim()))
    return channels.take(part[index], axes[0])


def _is_fixed(facts: ChannelFacts, node: fx.Node, channels: Channels) -> bool:
    """Whether the forward spells out a size that would have to change."""
    if not facts.frozen_shapes:
        return False
    call, name = arguments_of(node), node.target.overloadpacket.__name__  # type: ignore[union-attr]
    along = name in ("slice", "split", "split_with_sizes") and call["dim"] % len(size_of(call["self"])) == channels.axis
    return name in VIEWS or along
