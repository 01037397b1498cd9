"""Operations over space: pooling, resizing, padding and reductions, channel by channel."""

from typing import Any

import torch
from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts, Facts
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import arguments_of, concrete, size_of
from vbdrop.analysis.rules.reductions import read_with_count

_DIMENSIONS = (1, 2, 3)

PRESERVING = (
    *(f"max_pool{d}d" for d in _DIMENSIONS),
    *(f"adaptive_avg_pool{d}d" for d in _DIMENSIONS),
    *(f"upsample_nearest{d}d" for d in _DIMENSIONS),
    *(f"_upsample_nearest_exact{d}d" for d in _DIMENSIONS),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
)
"""Each value of the result is a weighted mean or a maximum of values of its channel."""

WITH_INDICES = (
    *(f"adaptive_max_pool{d}d" for d in _DIMENSIONS),
    *(f"max_pool{d}d_with_indices" for d in (2, 3)),
)
AVERAGES = tuple(f"avg_pool{d}d" for d in _DIMENSIONS)
PADS = ("pad", "constant_pad_nd")
REDUCTIONS = ("mean", "amax", "amin", "sum", "linalg_vector_norm")
DEPENDS_ON_COUNT = ("sum", "linalg_vector_norm")
"""For a constant, the result of these depends on the image size, which the small model does not fix."""


def preserve(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A constant channel keeps its value."""
    return _over_space(facts, node, facts.channels(node.args[0]))


def preserve_first(facts: ChannelFacts, node: fx.Node) -> Facts:
    """Maxima and their positions: like `preserve`, if only the maxima are used."""
    if any(user.args[1] != 0 for user in node.users):
        facts.keep(node, "the positions of its maxima are used")
        return None
    return [preserve(facts, node), None]


def average(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A constant channel keeps its value, unless padded zeros are included in the average."""
    channels, call = _over_space(facts, node, facts.channels(node.args[0])), arguments_of(node)
    if channels is None:
        return None
    padded = any(concrete(call["padding"])) and call["count_include_pad"]
    if padded or call.get("divisor_override") is not None:
        return _only_zeros(channels)
    return channels


def pad(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A constant channel keeps its value if it is surrounded by the same value, or by copies of itself.

    If the channel axis is padded, the new channels are constants that are kept.
    """
    channels, call = facts.channels(node.args[0]), arguments_of(node)
    if channels is None:
        return None
    widths, is_constant = concrete(call["pad"]), call.get("mode", "constant") == "constant"
    before, after = _added(widths, len(size_of(node)) - 1 - channels.axis)
    if (before or after) and not (is_constant and min(before, after) >= 0):
        facts.keep(node, "channels are padded")
        return None
    fill = float(call["value"] or 0.0)
    if is_constant and sum(map(abs, widths)) > before + after:  # pixels are added too
        channels = channels.with_values(channels.known & (channels.value == fill), channels.value)
    if not (before or after):
        return channels
    parts = [channels]
    for count, at in ((before, 0), (after, len(parts) + (before > 0))):
        if count:
            new = facts.pinned_channels(channels.axis, count)
            parts.insert(at, new.with_values(torch.ones_like(new.known), torch.full_like(new.value, fill)))
    fields = (torch.cat([getattr(part, field) for part in parts]) for field in ("units", "known", "value"))
    return Channels(channels.axis, *fields)


def _added(widths: list[int], from_end: int) -> tuple[int, int]:
    """The padding before and after an axis, which is counted from the last one."""
    at = 2 * from_end
    return (widths[at], widths[at + 1]) if at < len(widths) else (0, 0)


def reduce(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """A reduction over axes other than the channel axis."""
    call, dims = arguments_of(node), len(size_of(node.args[0]))  # type: ignore[arg-type]
    axes = {axis % dims for axis in _listed(call.get("dim")) or range(dims)}
    grid = facts.by_node.get(node.args[0])  # type: ignore[arg-type]
    if isinstance(grid, Grid) and not axes & set(grid.axes):
        left = tuple(axis if call.get("keepdim") else axis - sum(a < axis for a in axes) for axis in grid.axes)
        return Grid(left, grid.units, torch.zeros_like(grid.known), torch.zeros_like(grid.value))
    channels = facts.channels(node.args[0])
    if channels is None:
        return None
    if channels.axis in axes:
        if _operation(node) in ("mean", "sum") and facts.counts(node):
            read_with_count(facts, node, facts.summed(node, channels))
        else:
            facts.keep(node, f"{node.target} reduces over the channels", report=False)
        return None
    moved = channels.axis if call.get("keepdim") else channels.axis - sum(axis < channels.axis for axis in axes)
    result = channels.at(moved)
    return _only_zeros(result) if _operation(node) in DEPENDS_ON_COUNT else result


def _operation(node: fx.Node) -> str:
    return str(node.target.overloadpacket.__name__)  # type: ignore[union-attr]


def _listed(argument: Any) -> list[int]:  # noqa: ANN401 -- a number, several or None
    return [] if argument is None else [argument] if isinstance(argument, int) else list(argument)


def _only_zeros(channels: Channels) -> Channels:
    return channels.with_values(channels.known & (channels.value == 0), torch.zeros_like(channels.value))


def _over_space(facts: ChannelFacts, node: fx.Node, channels: Channels | None) -> Channels | None:
    """The channels, if the operation does not work on their axis."""
    if channels is None:
        return None
    spatial = int(next(c for c in reversed(_operation(node)) if c.isdigit()))
    if channels.axis >= len(size_of(node.args[0])) - spatial:  # type: ignore[arg-type]
        facts.keep(node, f"{node.target} works along the channels")
        return None
    return channels
