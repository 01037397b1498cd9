"""Norms and means over channels that still count the zero channels that were removed.

The formulas are those of `vbdrop.layers.counted_norm`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from vbdrop.analysis.graph import arguments_of, size_of
from vbdrop.compression.rewriting.graph_writer import Writer

aten = torch.ops.aten


def layer_norm(writer: Writer, node: fx.Node) -> fx.Node:
    """Layer normalisation over the last axis; like torch's, it leaves the channels last in memory for what follows."""
    if _share(writer, node) == 1:
        return writer.copy(node)
    call = _call(writer, node)
    call["input"] = writer.call(aten.contiguous.default, call["input"])
    return _standardised(writer, node, call, -1, [])


def group_norm(writer: Writer, node: fx.Node) -> fx.Node:
    """Group normalisation with one group, over all axes but the first."""
    if _share(writer, node) == 1:
        return writer.copy(node)
    call, dims = _call(writer, node), len(size_of(node))
    for name in ("weight", "bias"):
        if call[name] is not None:
            call[name] = writer.call(aten.view.default, call[name], [-1, *[1] * (dims - 2)])
    return _standardised(writer, node, call, 1, list(range(2, dims)))


def _standardised(writer: Writer, node: fx.Node, call: dict[str, Any], axis: int, positions: list[int]) -> fx.Node:
    """Normalise the input by the mean and the variance of all channels, then scale and shift it.

    Squares can overflow in half precision, so the statistics are then computed in float32.
    """

    def over_channels(value: fx.Node) -> fx.Node:
        total = writer.call(aten.sum.dim_IntList, value, [axis], True)
        return writer.call(aten.mean.dim, total, positions, True) if positions else total

    count = len(writer.kept(writer.facts.counted[node]))
    half = node.meta["val"].dtype in (torch.float16, torch.bfloat16)
    wide = writer.call(aten._to_copy.default, call["input"], dtype=torch.float32) if half else call["input"]
    total = over_channels(wide)
    centred = writer.call(aten.sub.Tensor, wide, total, alpha=1 / count)
    squares = over_channels(writer.call(aten.mul.Tensor, centred, centred))
    squares = writer.call(aten.addcmul.default, squares, total, total, value=(1 - _share(writer, node)) / count)
    variance = writer.call(aten.mul.Tensor, squares, 1 / count)
    inverse = writer.call(aten.rsqrt.default, writer.call(aten.add.Tensor, variance, call["eps"]))
    value = writer.call(aten.mul.Tensor, centred, inverse)
    value = writer.call(aten.type_as.default, value, call["input"]) if half else value
    scale, shift = call["weight"], call["bias"]
    value = value if scale is None else writer.call(aten.mul.Tensor, value, scale)
    return value if shift is None else writer.call(aten.add.Tensor, value, shift)


def rms_norm(writer: Writer, node: fx.Node) -> fx.Node:
    """RMS normalisation over the last axis."""
    share = _share(writer, node)
    if share == 1:
        return writer.copy(node)
    call, count = _call(writer, node), int(writer.kept(writer.facts.counted[node]).sum())
    eps = torch.finfo(node.meta["val"].dtype).eps if call["eps"] is None else call["eps"]
    value = writer.call(aten.rms_norm.default, call["input"], [count], call["weight"], eps / share)
    return writer.call(aten.mul.Tensor, value, share**-0.5)


def mean(writer: Writer, node: fx.Node) -> fx.Node:
    """A mean over the channels and possibly other axes."""
    value, share = writer.copy(node), _share(writer, node)
    return value if share == 1 else writer.call(aten.mul.Tensor, value, share)


def _share(writer: Writer, node: fx.Node) -> float:
    """The share of the channels that are kept."""
    channels = writer.facts.counted.get(node)
    share = 1.0 if channels is None else float(writer.kept(channels).double().mean())
    writer.new_operations |= share != 1
    return share


def _call(writer: Writer, node: fx.Node) -> dict[str, Any]:
    return {name: fx.map_arg(argument, writer.value) for name, argument in arguments_of(node).items()}


COUNTED: dict[Any, Callable[[Writer, fx.Node], fx.Node]] = {
    aten.layer_norm.default: layer_norm,
    aten.group_norm.default: group_norm,
    aten.rms_norm.default: rms_norm,
    aten.mean.default: mean,
    aten.mean.dim: mean,
}
"""Operation -> how it is written with fewer channels."""
