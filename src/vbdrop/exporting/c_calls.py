"""Writes each operation of a program as C: the tables it reads, the kernels it needs, and its statements."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vbdrop.exporting.c_activations import literal
from vbdrop.exporting.c_program import (
    AddAt,
    Affine,
    Axis,
    Combine,
    Constant,
    ConvolutionOperation,
    Floats,
    Gather,
    Integers,
    Join,
    LinearOperation,
    Operation,
    Pointwise,
    Pool,
    Softmax,
)

# The cost of a weight stored with its position, relative to one in a dense loop that a compiler vectorises: by columns,
# each goes to a separate address; by planes, the inner loop is the same, and only the start is looked up.
SPARSE_COST_BY_COLUMNS = 6.0
SPARSE_COST_BY_PLANES = 1.2


@dataclass(frozen=True)
class Places:
    """C expressions for where an operation reads, writes and works."""

    sources: tuple[str, ...]
    target: str
    workspace: str


@dataclass
class Fragment:
    """The C of one operation; a kernel is its name and the type of its index table, the note becomes a comment."""

    tables: list[str] = field(default_factory=list)
    kernels: set[tuple[str, str]] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    note: str = ""

    def floats(self, name: str, values: Floats) -> str:
        """Add a table of floats; return its name."""
        self._table("float", name, map(literal, values.reshape(-1)), values.size)
        return name

    def integers(self, name: str, values: Integers, kind: str = "") -> tuple[str, str]:
        """Add a table of integers, of type `kind` or the narrowest that fits; return its name and type."""
        kind = kind or _narrowest(values)
        self._table(kind, name, map(str, values.tolist()), values.size)
        return name, kind

    def _table(self, kind: str, name: str, values: Iterable[str], size: int) -> None:
        texts = list(values) or ["0"]  # C has no empty arrays
        lines = (", ".join(texts[i : i + 10]) for i in range(0, len(texts), 10))
        body = ",\n    ".join(lines)
        self.tables.append(f"static const {kind} {name}[{max(1, size)}] = {{\n    {body}\n}};")

    def call(self, kernel: str, *arguments: object, index: str = "") -> str:
        """A call of `kernel`, which is added to the kernels needed."""
        self.kernels.add((kernel, index))
        name = f"{kernel}_{index}" if index else kernel
        return f"{name}({', '.join(map(str, arguments))});"


def write_operation(operation: Operation, places: Places) -> Fragment:
    """The C of `operation`."""
    fragment = Fragment()
    if operation.in_place and places.sources[0] != places.target:
        size = operation.target.size
        fragment.lines.append(f"memcpy({places.target}, {places.sources[0]}, {size} * sizeof(float));")
    _WRITERS[type(operation)](fragment, operation, places)
    return fragment


def _narrowest(values: Integers) -> str:
    largest = int(values.max(initial=0))
    return "uint8_t" if largest < 2**8 else "uint16_t" if largest < 2**16 else "uint32_t"


def _element(place: str, index: str) -> str:
    """A C expression for one value of a place: `scratch[16 + i]` for `scratch + 16`."""
    array, _, offset = place.partition(" + ")
    return f"{array}[{offset} + {index}]" if offset else f"{array}[{index}]"


def _gather(fragment: Fragment, operation: Gather, places: Places) -> None:
    starts, kind = fragment.integers(f"{operation.name}_starts", operation.starts)
    count, block = len(operation.starts), operation.block
    fragment.lines.append(fragment.call("gather", places.sources[0], places.target, starts, count, block, index=kind))


def _add_at(fragment: Fragment, operation: AddAt, places: Places) -> None:
    starts, kind = fragment.integers(f"{operation.name}_starts", operation.starts)
    count, block = len(operation.starts), operation.block
    fragment.lines.append(fragment.call("add_at", places.sources[1], places.target, starts, count, block, index=kind))


def _constant(fragment: Fragment, operation: Constant, places: Places) -> None:
    table = fragment.floats(f"{operation.name}_values", operation.values)
    fragment.lines.append(f"memcpy({places.target}, {table}, {operation.target.size} * sizeof(float));")


def _join(fragment: Fragment, operation: Join, places: Places) -> None:
    stride, offset = operation.target.size // max(1, operation.count), 0
    for buffer, source in zip(operation.sources, places.sources, strict=True):
        block = buffer.size // max(1, operation.count)
        fragment.lines.append(
            fragment.call("spread", source, f"{places.target} + {offset}", operation.count, block, stride)
        )
        offset += block


@dataclass(frozen=True)
class _Stored:
    """The rows of a matrix as tables: all values, or the non-zero ones with their positions."""

    arguments: tuple[str, ...]
    form: str
    index: str


def _store(fragment: Fragment, name: str, rows: Floats, sparse_cost: float) -> _Stored:
    single = rows.astype(np.float32)
    where = np.nonzero(single)
    fragment.note = f"{len(where[0])} of {single.size} weights"
    counts = np.count_nonzero(single, axis=1)
    if len(where[0]) * sparse_cost >= single.size or counts.max(initial=0) >= 2**16:
        return _Stored((fragment.floats(f"{name}_weight", rows),), "dense", "")
    weight = fragment.floats(f"{name}_weight", rows[where])
    at, kind = fragment.integers(f"{name}_at", where[1])
    per_row, _ = fragment.integers(f"{name}_counts", counts, "uint16_t")
    return _Stored((weight, at, per_row), "sparse", kind)


def _linear(fragment: Fragment, operation: LinearOperation, places: Places) -> None:
    outputs, inputs = operation.weight.shape
    stored = _store(fragment, operation.name, operation.weight.T, SPARSE_COST_BY_COLUMNS)
    bias = fragment.floats(f"{operation.name}_bias", operation.bias)
    source, target, tables = places.sources[0], places.target, (*stored.arguments, bias)
    if operation.rows != 1:
        source, target = f"{source} + row * {inputs}", f"{target} + row * {outputs}"
        fragment.lines.append(f"for (int row = 0; row < {operation.rows}; ++row)")
    fragment.lines.append(
        fragment.call(f"{stored.form}_columns", source, target, *tables, inputs, outputs, 1, index=stored.index)
    )


def _convolution(fragment: Fragment, operation: ConvolutionOperation, places: Places) -> None:
    name, shape = operation.name, operation.geometry
    matrix = operation.weight.reshape(len(operation.bias), -1)
    if operation.by_pixel:
        stored = _store(fragment, name, matrix.T, SPARSE_COST_BY_COLUMNS)
    else:
        stored = _store(fragment, name, matrix, SPARSE_COST_BY_PLANES)
    tables = (*stored.arguments, fragment.floats(f"{name}_bias", operation.bias))
    outputs, depth = matrix.shape
    height, width = shape.output
    plane = height * width

    if shape.is_unfolded:
        patches, pixels, target, unfolding = places.sources[0], f"{plane}", places.target, []
    else:
        numbers = (shape.channels, *shape.size, *shape.kernel, *shape.stride, *shape.padding, *shape.dilation, width)
        fragment.tables.append(f"static const geometry {name}_geometry = {{{', '.join(map(str, numbers))}}};")
        patches, pixels, target = places.workspace, f"rows * {width}", f"{places.target} + top * {width}"
        unfolding = [
            f"const int rows = {height} - top < {shape.rows} ? {height} - top : {shape.rows};",
            fragment.call("unfold", places.sources[0], patches, f"&{name}_geometry", "top", "rows"),
        ]
    if operation.by_pixel:
        products = f"{places.workspace} + {shape.patch_size}"
        multiplying = [
            fragment.call(
                f"{stored.form}_columns", patches, products, *tables, depth, outputs, pixels, index=stored.index
            ),
            fragment.call("turn", products, target, outputs, pixels, plane),
        ]
    else:
        counts = (depth, outputs) if stored.form == "dense" else (outputs,)
        multiplying = [
            fragment.call(f"{stored.form}_planes", patches, target, *tables, *counts, pixels, plane, index=stored.index)
        ]
    if unfolding:
        fragment.lines.append(f"for (int top = 0; top < {height}; top += {shape.rows}) {{")
        fragment.lines += [f"    {line}" for line in unfolding + multiplying]
        fragment.lines.append("}")
    else:
        fragment.lines += multiplying


def _pool(fragment: Fragment, operation: Pool, places: Places) -> None:
    fragment.kernels.add(("windows", ""))
    rows = _windows(fragment, f"{operation.name}_rows", operation.vertical, operation.kind)
    columns = _windows(fragment, f"{operation.name}_columns", operation.horizontal, operation.kind)
    fragment.lines.append(
        fragment.call(
            f"{operation.kind}_pool",
            places.sources[0],
            places.target,
            places.workspace,
            operation.channels,
            f"&{rows}",
            f"&{columns}",
        )
    )


def _windows(fragment: Fragment, name: str, axis: Axis, kind: str) -> str:
    starts, _ = fragment.integers(f"{name}_starts", axis.starts, "int")
    stops, _ = fragment.integers(f"{name}_stops", axis.stops, "int")
    factors = fragment.floats(f"{name}_factors", axis.factors) if kind == "mean" else "0"
    members = f"{starts}, {stops}, {factors}, {axis.size}, {len(axis.starts)}, {axis.step}"
    fragment.tables.append(f"static const windows {name} = {{{members}}};")
    return name


def _pointwise(fragment: Fragment, operation: Pointwise, places: Places) -> None:
    fragment.lines += [
        f"for (int i = 0; i < {operation.target.size}; ++i) {{",
        f"    const float v = {_element(places.target, 'i')};",
        f"    {_element(places.target, 'i')} = {operation.expression};",
        "}",
    ]


def _affine(fragment: Fragment, operation: Affine, places: Places) -> None:
    scale = fragment.floats(f"{operation.name}_scale", operation.scale)
    shift = fragment.floats(f"{operation.name}_shift", operation.shift)
    channels, inner = len(operation.scale), operation.inner
    outer = operation.target.size // max(1, channels * inner)
    fragment.lines.append(fragment.call("affine", places.target, scale, shift, outer, channels, inner))


def _combine(fragment: Fragment, operation: Combine, places: Places) -> None:
    size, inner, count = operation.target.size, operation.inner, operation.other.size
    other, sign = places.sources[1], operation.sign
    which = f"i / {inner}" if inner > 1 else "i"
    which = f"{which} % {count}" if count * inner < size else which
    fragment.lines += [
        f"for (int i = 0; i < {size}; ++i) {{",
        f"    {_element(places.target, 'i')} {sign}= {_element(other, which)};",
        "}",
    ]


def _softmax(fragment: Fragment, operation: Softmax, places: Places) -> None:
    outer = operation.target.size // max(1, operation.count * operation.inner)
    fragment.lines.append(
        fragment.call("softmax", places.target, outer, operation.count, operation.inner, int(operation.log))
    )


_WRITERS: dict[type, Callable[[Fragment, Any, Places], None]] = {
    AddAt: _add_at,
    Gather: _gather,
    Constant: _constant,
    Join: _join,
    LinearOperation: _linear,
    ConvolutionOperation: _convolution,
    Pool: _pool,
    Pointwise: _pointwise,
    Affine: _affine,
    Combine: _combine,
    Softmax: _softmax,
}
