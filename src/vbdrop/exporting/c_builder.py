"""The parts from which a program is built: variables, calls with bound arguments, and a growing program."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vbdrop.exporting.c_program import Buffer, Constant, Floats, Gather, Integers, Operation
from vbdrop.exporting.errors import ExportError


@dataclass(frozen=True)
class Variable:
    """A value that depends on the input: a buffer with the shape of one sample, without the batch axis."""

    buffer: Buffer
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One operation of the graph: its name, its arguments by name, and the shape of its output for one sample."""

    name: str
    node: str
    arguments: dict[str, Any]
    shape: tuple[int, ...]

    def unsupported(self, reason: str = "") -> ExportError:
        """The error that names this operation."""
        detail = f": {reason}" if reason else ""
        return ExportError(f"the C writer cannot write the operation `aten.{self.name}` (node `{self.node}`){detail}.")

    def variable(self, name: str) -> Variable:
        """The argument `name`, which must depend on the input."""
        value = self.arguments[name]
        if not isinstance(value, Variable):
            raise self.unsupported(f"its argument `{name}` does not depend on the model's input")
        return value

    def constant(self, name: str) -> Floats:
        """The argument `name`, which must not depend on the input."""
        value = self.arguments[name]
        if not isinstance(value, torch.Tensor):
            raise self.unsupported(f"its argument `{name}` depends on the model's input or is omitted")
        array: Floats = value.detach().double().cpu().numpy()
        if not np.isfinite(array).all():
            raise self.unsupported(f"its argument `{name}` has values that are not finite")
        return array

    def constant_or(self, default: float, name: str, size: int) -> Floats:
        """The argument `name` as a vector of `size`, or `default` if it is omitted."""
        if self.arguments[name] is None:
            return np.full(size, default)
        return np.broadcast_to(self.constant(name).reshape(-1), size)

    def pair(self, name: str) -> tuple[int, int]:
        """The argument `name` as (vertical, horizontal); in one dimension, the vertical part is neutral."""
        value = self.arguments[name]
        values = [value] if isinstance(value, int) else list(value)
        if self.name.endswith("1d"):
            return (0 if name == "padding" else 1), values[0]
        return values[0], values[-1]


class Builder:
    """Collects the operations of a program while the graph is walked."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._buffers = 0

    def buffer(self, size: int) -> Buffer:
        """A new buffer."""
        self._buffers += 1
        return Buffer(self._buffers, size)

    def result(self, shape: tuple[int, ...]) -> Variable:
        """A new variable of `shape`, to be written by an operation."""
        return Variable(self.buffer(math.prod(shape)), shape)

    def gather(self, name: str, source: Variable, positions: torch.Tensor) -> Variable:
        """The values of `source` at `positions` (which have the new shape); no operation if nothing moves."""
        flat = positions.reshape(-1).cpu().numpy()
        shape = tuple(positions.shape)
        if np.array_equal(flat, np.arange(source.buffer.size)):
            return Variable(source.buffer, shape)
        target = self.result(shape)
        self.operations.append(Gather(name, source.buffer, target.buffer, *blocks_of(flat)))
        return target

    def expand(self, name: str, source: Variable, shape: tuple[int, ...]) -> Variable:
        """`source`, broadcast to `shape`."""
        positions = torch.arange(source.buffer.size).reshape(source.shape)
        return self.gather(name, source, positions.expand(shape))

    def variable(self, name: str, value: Variable | torch.Tensor) -> Variable:
        """`value` in a buffer; a constant has the batch as its first axis, of size one."""
        if isinstance(value, Variable):
            return value
        if value.ndim == 0 or len(value) != 1:
            raise ExportError(
                f"the C writer cannot write the constant `{name}`: its first axis must be the batch, of size 1 for one "
                f"sample; its shape is {tuple(value.shape)}."
            )
        target = self.result(tuple(value.shape[1:]))
        self.operations.append(Constant(name, target.buffer, value.detach().double().reshape(-1).numpy()))
        return target


def blocks_of(positions: Integers) -> tuple[Integers, int]:
    """Write positions as the starts of equal blocks of consecutive numbers, with the largest possible block size.

    Example:
        >>> starts, size = blocks_of(np.array([3, 4, 8, 9]))
        >>> starts.tolist(), size
        ([3, 8], 2)
    """
    if len(positions) == 0:
        return positions, 1
    breaks = np.flatnonzero(np.diff(positions) != 1) + 1
    size = int(np.gcd.reduce([len(positions), *breaks]))
    return positions[::size], size
