"""The intermediate program between the traced graph and the C text.

A program is a list of operations on buffers of floats, for one sample: there is no batch, there are no views (a view is
the buffer itself), and every shape is a number. `c_reader` makes it from a model, `c_memory` places its buffers, and
`c_calls` writes each operation as C.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The largest buffer of unfolded patches, in floats: 64 KiB fit into the second-level cache, and into the memory of a
# small device. A convolution that needs more computes its output a few rows at a time.
PATCH_LIMIT = 16 * 1024


@dataclass(frozen=True)
class Buffer:
    """`size` floats, identified by a number."""

    number: int
    size: int


@dataclass(frozen=True, eq=False)
class _Operation:
    name: str
    source: Buffer
    target: Buffer

    # Whether the operation may overwrite its source, element by element.
    in_place: ClassVar[bool] = False

    @property
    def sources(self) -> tuple[Buffer, ...]:
        return (self.source,)

    @property
    def workspace(self) -> int:
        """Floats of scratch memory that the operation needs."""
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
        """Products per output value."""
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
        """Floats of patches unfolded at once."""
        return 0 if self.is_unfolded else self.pixels * self.depth


@dataclass(frozen=True, eq=False)
class ConvolutionOperation(_Operation):
    """A convolution over planes; `weight` is [outputs, inputs, kernel, kernel].

    Groups are expressed as zero weights; a product with few weights is stored sparsely, so they cost nothing.
    """

    weight: Floats
    bias: Floats
    geometry: Geometry

    @property
    def by_pixel(self) -> bool:
        """Whether the inner loop runs over the output channels instead of the pixels of a plane.

        The longer of the two makes the better inner loop; sixteen pixels are long enough.
        """
        return self.geometry.pixels < min(16, len(self.bias))

    @property
    def workspace(self) -> int:
        """The unfolded patches and, if by pixel, also the products before they are transposed to planes."""
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
    """The largest or the mean value of each window, plane by plane; first over rows, then over columns."""

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
    """`x * scale[c] + shift[c]`, with `c = i / inner % len(scale)` for value number `i`."""

    scale: Floats
    shift: Floats
    inner: int
    in_place: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Combine(_Operation):
    """`source (+ - * /) other[i / inner % other.size]`, for value number `i`."""

    other: Buffer
    sign: Literal["+", "-", "*", "/"]
    inner: int
    in_place: ClassVar[bool] = True

    @property
    def sources(self) -> tuple[Buffer, ...]:
        """Both operands; the first may be overwritten."""
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
        """Both operands; the first may be overwritten."""
        return (self.source, self.other)


@dataclass(frozen=True, eq=False)
class Softmax(_Operation):
    """Softmax, or its logarithm, over groups of `count` values that are `inner` apart."""

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
    """Fold each scale and shift (a batch norm, say) into the product before it, if nothing else reads that product.

    A zero weight stays zero. A scale that does not directly follow a product remains a separate operation.
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
