"""What is known about a tensor, channel by channel, and which channels of different tensors form one unit."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Channels:
    """The channels of one tensor of the graph.

    A channel is a position along ``axis``. Channels that can only be removed together belong to one unit: the input
    and the output of an activation, the terms of a sum, all pixels of a flattened feature map.

    Attributes:
        axis: The axis of the tensor that runs over channels.
        units: The unit of each channel.
        known: Whether a channel has the same value for every input, at every position.
        value: That value, in float64; 0 where it is not known.

    Example:
        >>> channels = Channels.varying(1, torch.arange(3))
        >>> channels.take(torch.tensor([2, 2, 0]), axis=2).units
        tensor([2, 2, 0])
    """

    axis: int
    units: Tensor
    known: Tensor
    value: Tensor

    @classmethod
    def varying(cls, axis: int, units: Tensor) -> "Channels":
        """Channels without known values."""
        none = torch.zeros(len(units), dtype=torch.bool)
        return cls(axis, units, none, torch.zeros(len(units), dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.units)

    def with_values(self, known: Tensor, value: Tensor) -> "Channels":
        """The same channels with other known values."""
        return Channels(self.axis, self.units, known, torch.where(known, value.double(), 0.0))

    def take(self, source: Tensor, axis: int) -> "Channels":
        """The channels of a tensor whose channel ``j`` is channel ``source[j]`` of this one."""
        return Channels(axis, self.units[source], self.known[source], self.value[source])

    def at(self, axis: int) -> "Channels":
        """The same channels on another axis."""
        return Channels(axis, self.units, self.known, self.value)


@dataclass(frozen=True)
class Grid:
    """Channels that a view has spread over several axes, such as heads and the features of each head.

    Only whole slices of a tensor can be removed, so when an operation needs one of the axes, `along` turns the grid
    into `Channels` on that axis and ties all units of a slice. Until then the axis is undecided.

    Attributes:
        axes: The axes of the tensor that run over channels, in order.
        units: The unit of each channel, with one axis for each of ``axes``.
        known: Whether a channel has the same value for every input, at every position.
        value: That value, in float64; 0 where it is not known.

    Example:
        >>> grid = Grid((1, 2), torch.arange(4).view(2, 2), torch.zeros(2, 2).bool(), torch.zeros(2, 2).double())
        >>> sets = UnitSets()
        >>> _ = sets.new(4)
        >>> grid.along(1, sets).units, sets.roots()
        (tensor([0, 2]), tensor([0, 0, 2, 2]))
    """

    axes: tuple[int, ...]
    units: Tensor
    known: Tensor
    value: Tensor

    def with_values(self, known: Tensor, value: Tensor) -> "Grid":
        """The same channels with other known values."""
        return Grid(self.axes, self.units, known, torch.where(known, value.double(), 0.0))

    def along(self, axis: int, sets: "UnitSets") -> Channels:
        """The channels on one of the axes; the units of each slice along the others are tied."""
        units, known, value = (self._slices(field, axis) for field in (self.units, self.known, self.value))
        sets.tie(units[:, :1].expand_as(units).flatten(), units.flatten())
        same = known.all(1) & (value == value[:, :1]).all(1)
        return Channels(axis, units[:, 0], same, torch.where(same, value[:, 0], 0.0))

    @property
    def longest(self) -> int:
        """The axis with the most channels; the last such axis if there are several."""
        return max(zip(self.units.shape, self.axes, strict=True))[1]

    def fits(self, axis: int, sets: "UnitSets") -> bool:
        """Whether the units of each slice along the other axes are already tied."""
        units = self._slices(sets.find(self.units), axis)
        return bool((units == units[:, :1]).all())

    def _slices(self, field: Tensor, axis: int) -> Tensor:
        return field.movedim(self.axes.index(axis), 0).flatten(1)


@dataclass(frozen=True)
class Stack:
    """Tensors stacked along a new first axis, each with its own channels: the states of recurrent layers.

    Attributes:
        parts: The channels of each tensor, on their axis before stacking.

    Example:
        >>> Stack([Channels.varying(1, torch.arange(2)), Channels.varying(1, torch.arange(2, 4))]).parts[-1].units
        tensor([2, 3])
    """

    parts: list[Channels]


class UnitSets:
    """The units of a graph: a disjoint-set forest over their numbers.

    Example:
        >>> units = UnitSets()
        >>> a, b = units.new(2), units.new(2)
        >>> units.tie(a, b)
        >>> units.roots()
        tensor([0, 1, 0, 1])
    """

    def __init__(self) -> None:
        self._parent: list[int] = []

    def new(self, count: int) -> Tensor:
        """This many new units, not yet tied to anything."""
        start = len(self._parent)
        self._parent.extend(range(start, start + count))
        return torch.arange(start, start + count)

    def tie(self, first: Tensor, second: Tensor) -> None:
        """Tie each pair into one unit."""
        for a, b in zip(first.tolist(), second.tolist(), strict=True):
            low, high = sorted((self._root(a), self._root(b)))
            self._parent[high] = low

    def find(self, units: Tensor) -> Tensor:
        """For each of these numbers, the number that represents its unit."""
        return torch.tensor([self._root(i) for i in units.flatten().tolist()], dtype=torch.int64).view(units.shape)

    def roots(self) -> Tensor:
        """For every number, the number that represents its unit."""
        return torch.tensor([self._root(i) for i in range(len(self._parent))], dtype=torch.int64)

    def _root(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number
