"""Pools and reductions: each axis of the output is a list of windows, whatever their rule."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from vbdrop.exporting.c_builder import Builder, Call, Variable
from vbdrop.exporting.c_products import plane_of
from vbdrop.exporting.c_program import Axis, Pool

Kind = Literal["max", "mean"]


def read_pool(kind: Kind) -> Callable[[Builder, Call], Variable]:
    """Pools with a moving window: `max_pool1d`, `avg_pool2d`, and so on."""

    def read(builder: Builder, call: Call) -> Variable:
        sizes, counts = plane_of(call.variable("self").shape), plane_of(call.shape)
        vertical, horizontal = (_moving_axis(call, axis, sizes[axis], counts[axis]) for axis in (0, 1))
        if divisor := call.arguments.get("divisor_override"):
            vertical.factors[:], horizontal.factors[:] = 1 / divisor, 1
        return _pool(builder, call, kind, call.variable("self").shape[0], vertical, horizontal)

    return read


def read_adaptive_pool(kind: Kind) -> Callable[[Builder, Call], Variable]:
    """Pools to an output of a given size."""

    def read(builder: Builder, call: Call) -> Variable:
        sizes, counts = plane_of(call.variable("self").shape), plane_of(call.shape)
        vertical, horizontal = (_adaptive_axis(size, count) for size, count in zip(sizes, counts, strict=True))
        return _pool(builder, call, kind, call.variable("self").shape[0], vertical, horizontal)

    return read


def read_reduction(kind: Literal["max", "mean", "sum"]) -> Callable[[Builder, Call], Variable]:
    """`mean`, `sum` and `amax` over adjacent axes."""

    def read(builder: Builder, call: Call) -> Variable:
        source, dimensions = call.variable("self"), call.arguments.get("dim")
        rank = len(source.shape) + 1
        axes = sorted(axis % rank for axis in (dimensions or range(rank)))
        if axes[0] == 0 or axes[-1] - axes[0] != len(axes) - 1:
            raise call.unsupported(f"over the axes {axes} of {rank}")
        shape = source.shape
        count, inner = math.prod(shape[axes[0] - 1 : axes[-1]]), math.prod(shape[axes[-1] :])
        factor = 1.0 if kind == "sum" else 1.0 / max(1, count)
        across = Axis(count, np.zeros(1, np.int64), np.full(1, count), np.full(1, factor))
        along = Axis(inner, np.arange(inner), np.arange(1, inner + 1), np.ones(inner))
        return _pool(builder, call, "max" if kind == "max" else "mean", math.prod(shape[: axes[0] - 1]), across, along)

    return read


def with_indices(read: Callable[[Builder, Call], Variable]) -> Callable[[Builder, Call], tuple[Variable, None]]:
    """The same for an operation that also returns positions, which a network does not use."""
    return lambda builder, call: (read(builder, call), None)


def _pool(builder: Builder, call: Call, kind: Kind, channels: int, vertical: Axis, horizontal: Axis) -> Variable:
    target = builder.result(call.shape)
    source = call.variable("self").buffer
    builder.operations.append(Pool(call.node, source, target.buffer, kind, channels, vertical, horizontal))
    return target


def _adaptive_axis(size: int, count: int) -> Axis:
    outputs = np.arange(count)
    starts, stops = outputs * size // count, -(-(outputs + 1) * size // count)
    return Axis(size, starts, stops, 1.0 / (stops - starts))


def _moving_axis(call: Call, axis: int, size: int, count: int) -> Axis:
    kernel, padding = call.pair("kernel_size")[axis], call.pair("padding")[axis]
    stride = call.pair("stride")[axis] if call.arguments["stride"] else kernel
    dilation = call.pair("dilation")[axis] if "dilation" in call.arguments else 1
    starts = np.arange(count) * stride - padding
    stops = np.minimum(starts + (kernel - 1) * dilation + 1, size + padding)
    padded = stops - starts
    starts = np.where(starts < 0, starts % dilation, starts)
    stops = np.minimum(stops, size)
    divisors = padded if call.arguments.get("count_include_pad") else stops - starts
    return Axis(size, starts, stops, 1.0 / np.maximum(divisors, 1), dilation)
