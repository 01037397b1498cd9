"""Sums and products of two values, with broadcasting; with a constant they are a scale and a shift."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vbdrop.exporting.c_builder import Builder, Call, Variable, blocks_of
from vbdrop.exporting.c_program import AddAt, Affine, Combine

Sign = Literal["+", "-", "*", "/"]
Shape = tuple[int, ...]


def read_arithmetic(sign: Sign, is_reversed: bool = False) -> Callable[[Builder, Call], Variable]:
    """`add`, `sub`, `rsub`, `mul` and `div` of tensors and numbers."""

    def read(builder: Builder, call: Call) -> Variable:
        first, second = call.arguments["self"], call.arguments["other"]
        if call.arguments.get("alpha", 1) != 1 or call.arguments.get("rounding_mode") is not None:
            raise call.unsupported("with alpha or a rounding mode")
        if any(_runs_along_batch(term, len(call.shape)) for term in (first, second)):
            raise call.unsupported("it is broadcast along the batch")
        if is_reversed:
            first, second = second, first
        if isinstance(first, Variable) and isinstance(second, Variable):
            return _combine(builder, call, first, second, sign)
        if isinstance(first, Variable):
            return _with_constant(builder, call, first, _scale_and_shift(call, second, sign))
        if sign == "/":
            raise call.unsupported("a constant divided by a value that depends on the input")
        scale, shift = _scale_and_shift(call, first, "+" if sign == "-" else sign)
        return _with_constant(builder, call, second, (-scale if sign == "-" else scale, shift))

    return read


def read_index_add(builder: Builder, call: Call) -> Variable:
    """`index_add(self, dim, index, source)` with constant positions."""
    base, term = (builder.variable(f"{call.node}_{name}", call.arguments[name]) for name in ("self", "source"))
    index = call.arguments["index"]
    if isinstance(index, Variable) or call.arguments["alpha"] != 1:
        raise call.unsupported("with positions that depend on the model's input, or with alpha")
    positions = torch.arange(base.buffer.size).reshape(1, *base.shape).index_select(call.arguments["dim"], index)
    starts, block = blocks_of(np.asarray(positions.reshape(-1)))
    target = builder.result(base.shape)
    builder.operations.append(AddAt(call.node, base.buffer, target.buffer, term.buffer, starts, block))
    return target


def _runs_along_batch(term: Variable | Tensor | float, rank: int) -> bool:
    """Whether the batch of a value is not the first axis of the result, or a constant differs between samples."""
    if isinstance(term, Variable):
        return len(term.shape) != rank
    return isinstance(term, Tensor) and term.ndim > rank and len(term) != 1


def _scale_and_shift(call: Call, constant: Tensor | float, sign: Sign) -> tuple[Tensor, Tensor]:
    values = torch.as_tensor(constant).detach().double()
    one, zero = torch.ones_like(values), torch.zeros_like(values)
    scale, shift = {"+": (one, values), "-": (one, -values), "*": (values, zero), "/": (1 / values, zero)}[sign]
    if not (scale.isfinite().all() and shift.isfinite().all()):
        raise call.unsupported("with a constant that is not finite")
    return scale, shift


def _with_constant(builder: Builder, call: Call, source: Variable, terms: tuple[Tensor, Tensor]) -> Variable:
    if source.shape != call.shape:
        source = builder.expand(f"{call.node}_expanded", source, call.shape)
    inner = _shared_by(_aligned(tuple(terms[0].shape), len(call.shape)), call.shape)
    if inner is None:
        inner, terms = 1, (terms[0].expand(1, *call.shape), terms[1].expand(1, *call.shape))
    scale, shift = (np.asarray(term.reshape(-1)) for term in terms)
    target = builder.result(call.shape)
    builder.operations.append(Affine(call.node, source.buffer, target.buffer, scale, shift, inner))
    return target


def _combine(builder: Builder, call: Call, first: Variable, second: Variable, sign: Sign) -> Variable:
    if first.shape != call.shape and sign in "+*":
        first, second = second, first
    if first.shape != call.shape:
        first = builder.expand(f"{call.node}_first", first, call.shape)
    inner = _shared_by(_aligned(second.shape, len(call.shape)), call.shape)
    if inner is None:
        inner, second = 1, builder.expand(f"{call.node}_second", second, call.shape)
    target = builder.result(call.shape)
    builder.operations.append(Combine(call.node, first.buffer, target.buffer, second.buffer, sign, inner))
    return target


def _aligned(shape: Shape, rank: int) -> Shape:
    """`shape`, without a leading batch axis, with leading ones up to `rank`."""
    return (1,) * (rank - len(shape)) + shape[max(0, len(shape) - rank) :]


def _shared_by(shape: Shape, full: Shape) -> int | None:
    """How many neighbours in a tensor of shape `full` share a value broadcast from `shape`.

    None if the axes along which `shape` varies are not adjacent.
    """
    varying = [axis for axis, size in enumerate(shape) if size != 1]
    if not varying:
        return max(1, math.prod(full))
    first, last = varying[0], varying[-1]
    if shape[first : last + 1] != full[first : last + 1]:
        return None
    return math.prod(full[last + 1 :])
