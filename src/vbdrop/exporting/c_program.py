"""The small program that stands between the traced graph and the C text.

A program is a list of operations on buffers of floats, for one sample: the batch is gone, views are gone (a view is the
buffer itself), and every shape is a number. `c_reader` makes it from a model, `c_memory` places its buffers, and
`c_calls` writes each operation as C.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The largest buffer of unfolded patches, in floats: 64 KiB stay inside the second-level cache, and inside the memory of
# a small device. A convolution with more works through its output a few rows at a time.
PATCH_LIMIT = 16 * 1024


@dataclass(frozen=True)
class Buffer:
    """`size` floats, known by their number."""

    number: int
    size: int


@dataclass(frozen=True, eq=False)
class _Operation:
    name: str
    source: Buffer
    target: Buffer

    # Whether the operation may write over its source, element by element.
    in_place: ClassVar[bool] = False

    @property
    def sources(self) -> tuple[Buffer, ...]:
        return (self.source,)

    @property
    def workspace(self) -> int:
        """Floats of scratch memory that the operation needs for itself."""
        return 0


@dataclass(frozen=True, eq=False)
class Gather(_Operation):
    """Blocks of `block` floats, copied from the offsets `starts`, one after the other."""

    starts: Integers
    block: int


@dataclass(frozen=True, eq=False)
class Constant:
    """Values that do not depend on the input."""

    name: str
    target: Buffer
    values: Floats

    in_place: ClassVar[bool] = False
    sources: ClassVar[tuple[Buffer, ...]] = ()
    workspace: ClassVar[int] = 0


@dataclass(frozen=True, eq=False)
class Join:
    """Concatenation: `count` times, a block of each source in turn."""

    name: str
    sources: tuple[Buffer, ...]
    target: Buffer
    count: int

    in_place: ClassVar[bool] = False
    workspace: ClassVar[int] = 0


@dataclass(frozen=True, eq=False)
class LinearOperation(_Operation):
    """`weight @ x + bias`, for each of the `rows` vectors in the source; `weight` is [outputs, inputs]."""

    weight: Floats
    bias: Floats
    rows: int

    @property
    def channel_size(self) -> int:
        """Floats between one output feature and the next."""
        return 1


@dataclass(frozen=True)
class Geometry:
    """How a window moves over a plane; pairs are (vertical, horizontal)."""

    channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    output: tuple[int, int]

    @property
    def depth(self) -> int:
        """Products in one output value."""
        return self.channels * self.kernel[0] * self.kernel[1]

    @property
    def is_unfolded(self) -> bool:
        """Whether the planes are their own patches: a kernel of one pixel, or one as large as the plane."""
        if self.padding != (0, 0):
            return False
        return (self.kernel == self.stride == (1, 1)) or (self.output == (1, 1) and self.kernel == self.size)

    @property
    def rows(self) -> int:
        """Output rows whose patches are unfolded at once."""
        if self.is_unfolded:
            return self.output[0]
        per_row = max(1, self.depth * self.output[1])
        return max(1, min(self.output[0], PATCH_LIMIT // per_row))

    @property
    def pixels(self) -> int:
        """Output pixels whose patches are unfolded at once."""
        return self.rows * self.output[1]

    @property
    def patch_size(self) -> int:
        """Floats of unfolded patches, at once."""
        return 0 if self.is_unfolded else self.pixels * self.depth


@dataclass(frozen=True, eq=False)
class ConvolutionOperation(_Operation):
    """A convolution over planes; `weight` is [outputs, inputs, kernel, kernel].

    Groups are weights that are zero: a product with few weights is stored as such, so they cost nothing.
    """

    weight: Floats
    bias: Floats
    geometry: Geometry

    @property
    def by_pixel(self) -> bool:
        """Whether the inner loop runs over the output channels, and not over the pixels of a plane.

        The longer of the two makes the better inner loop; sixteen pixels are long enough.
        """
        return self.geometry.pixels < min(16, len(self.bias))

    @property
    def workspace(self) -> int:
        """The unfolded patches, and by pixel also the products before they are turned into planes."""
        return self.geometry.patch_size + (self.geometry.pixels * len(self.bias) if self.by_pixel else 0)

    @property
    def channel_size(self) -> int:
        """Floats between one output channel and the next."""
        return self.geometry.output[0] * self.geometry.output[1]


@dataclass(frozen=True, eq=False)
class Axis:
    """The windows of a pool along one axis: [start, stop) by `step` for each output, and a factor for its mean."""

    size: int
    starts: Integers
    stops: Integers
    factors: Floats
    step: int = 1


@dataclass(frozen=True, eq=False)
class Pool(_Operation):
    """The largest or the mean value of each window, plane by plane; of rows first, then of columns."""

    kind: Literal["max", "mean"]
    channels: int
    vertical: Axis
    horizontal: Axis

    @property
    def workspace(self) -> int:
        """One row of a plane, after the vertical half."""
        return self.horizontal.size


@dataclass(frozen=True, eq=False)
class Pointwise(_Operation):
    """A C expression of `v`, for each value."""

    expression: str
    in_place: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Affine(_Operation):
    """`x * scale[c] + shift[c]`, with `c = i / inner % len(scale)` for the value number `i`."""

    scale: Floats
    shift: Floats
    inner: int
    in_place: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Combine(_Operation):
    """`source (+ - * /) other[i / inner % other.size]`, for the value number `i`."""

    other: Buffer
    sign: Literal["+", "-", "*", "/"]
    inner: int
    in_place: ClassVar[bool] = True

    @property
    def sources(self) -> tuple[Buffer, ...]:
        """Both operands; the first is the one that may be written over."""
        return (self.source, self.other)


@dataclass(frozen=True, eq=False)
class AddAt(_Operation):
    """`source`, with blocks of `block` floats of `other` added at the offsets `starts`."""

    other: Buffer
    starts: Integers
    block: int
    in_place: ClassVar[bool] = True

    @property
    def sources(self) -> tuple[Buffer, ...]:
        """Both operands; the first is the one that may be written over."""
        return (self.source, self.other)


@dataclass(frozen=True, eq=False)
class Softmax(_Operation):
    """Softmax, or its logarithm, over groups of `count` values that lie `inner` apart."""

    count: int
    inner: int
    log: bool
    in_place: ClassVar[bool] = True


Operation = (
    AddAt
    | Gather
    | Constant
    | Join
    | LinearOperation
    | ConvolutionOperation
    | Pool
    | Pointwise
    | Affine
    | Combine
    | Softmax
)


@dataclass(eq=False)
class CProgram:
    """The operations of one forward pass, in order."""

    input: Buffer
    output: Buffer
    operations: list[Operation] = field(default_factory=list)


def fold_affine(program: CProgram) -> CProgram:
    """Put each scale and shift (a batch-norm, say) into the product before it, where nothing else reads that product.

    A weight that is zero stays zero. What does not follow a product directly stays an operation of its own.
    """
    readers: dict[Buffer, int] = {program.output: 1}
    for operation in program.operations:
        for source in operation.sources:
            readers[source] = readers.get(source, 0) + 1
    folded: list[Operation] = []
    product_of: dict[Buffer, int] = {}
    for operation in program.operations:
        if isinstance(operation, Affine) and readers[operation.source] == 1:
            position = product_of.get(operation.source)
            merged = None if position is None else _merge(folded[position], operation)
            if position is not None and merged is not None:
                folded[position] = merged
                product_of[operation.target] = position
                continue
        if isinstance(operation, LinearOperation | ConvolutionOperation):
            product_of[operation.target] = len(folded)
        folded.append(operation)
    return CProgram(program.input, program.output, folded)


def _merge(product: Operation, affine: Affine) -> LinearOperation | ConvolutionOperation | None:
    if not isinstance(product, LinearOperation | ConvolutionOperation):
        return None
    uniform = len(affine.scale) == 1
    by_channel = len(affine.scale) == len(product.bias) and affine.inner == product.channel_size
    if not (uniform or by_channel):
        return None
    scale = affine.scale.reshape(-1, *[1] * (product.weight.ndim - 1))
    return dataclasses.replace(
        product,
        weight=product.weight * scale,
        bias=product.bias * affine.scale + affine.shift,
        target=affine.target,
    )
