"""The Plan: what to remove from a model, as plain data."""

import json
import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

VERSION = 1

Cut = dict[int, list[int]]
"""Axis of a tensor -> the indices that are kept on it."""


@dataclass(frozen=True)
class Merge:
    """Constant inputs whose weights are merged into the weights of one of them, the carrier.

    ``weight[rows, into] += sum(scale[k] * weight[rows, source[k]])``, with the inputs on ``axis``.

    Attributes:
        axis: The weight's axis that runs over inputs, 0 or 1.
        into: The carrier's index on that axis.
        source: The indices of the other inputs.
        scale: Their constants, divided by the carrier's.
        rows: The first and last (exclusive) index on the other axis: all outputs, or those of one group.
    """

    axis: int
    into: int
    source: list[int]
    scale: list[float]
    rows: tuple[int, int]


@dataclass(frozen=True)
class WeightLayout:
    """The layout of a convolution's weight: [outputs, inputs / groups], or transposed [inputs, outputs / groups]."""

    groups: int = 1
    transposed: bool = False


@dataclass(frozen=True)
class ForwardProgram:
    """The forward of a small model, if the forward of its class is no longer valid.

    Attributes:
        nodes: The graph, one entry per node; see `vbdrop.compression.rewriting.program`.
        buffers: A tensor that the graph needs but the class does not have -> ``{"dtype", "shape", "data"}``.
        removed: The parameters and buffers that the graph no longer uses.
    """

    nodes: list[dict[str, Any]]
    buffers: dict[str, dict[str, Any]]
    removed: list[str]


@dataclass(frozen=True)
class Plan:
    """What `compress` decided, as data that can be stored and applied again.

    All indices refer to the model before compression. Tensors that are not named are not changed.

    Attributes:
        keep: Parameter or buffer -> axis -> the indices that are kept.
        add: Bias or ``running_mean`` -> the values that are added to it after the cut; a missing bias is created.
        merge: Weight -> the constant inputs that are merged into a carrier before the cut.
        attributes: Module -> attribute -> its new number, such as ``in_features``.
        shapes: Each tensor named above -> its shape before compression (a missing bias has none).
        layouts: Weight of a grouped or transposed convolution -> its layout.
        positions: Weight -> how often each of its entries is used for one example.
        program: The new forward, or None if the original one is valid.
        channels_last: Whether a plain small model has the memory format `torch.channels_last`.

    Example:
        >>> plan = Plan(keep={"weight": {0: [0, 2]}}, shapes={"weight": [3, 4]})
        >>> plan.shape_after("weight")
        [2, 4]
        >>> Plan.from_json(plan.to_json()) == plan
        True
    """

    keep: dict[str, Cut] = field(default_factory=dict)
    add: dict[str, list[float]] = field(default_factory=dict)
    merge: dict[str, list[Merge]] = field(default_factory=dict)
    attributes: dict[str, dict[str, int]] = field(default_factory=dict)
    shapes: dict[str, list[int]] = field(default_factory=dict)
    layouts: dict[str, WeightLayout] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    program: ForwardProgram | None = None
    channels_last: bool = False

    def shape_after(self, name: str) -> list[int]:
        """The shape of a tensor after the plan is applied."""
        kept = self.keep.get(name, {})
        return [len(kept[axis]) if axis in kept else size for axis, size in enumerate(self.shapes[name])]

    def kept_inputs(self, weight: str) -> list[int] | None:
        """The input units of a weight that are kept, or None for all."""
        return self._kept_units(weight, inputs=True)

    def kept_outputs(self, weight: str) -> list[int] | None:
        """The output units of a weight that are kept, or None for all."""
        return self._kept_units(weight, inputs=False)

    def _kept_units(self, weight: str, inputs: bool) -> list[int] | None:
        layout, shape, kept = self.layouts.get(weight, WeightLayout()), self.shapes[weight], self.keep.get(weight, {})
        if inputs == layout.transposed:
            return kept.get(0)
        if layout.groups == 1 or not kept:
            return kept.get(1)
        # the second axis indexes the units within each remaining group
        rows, each = kept.get(0, range(shape[0])), shape[0] // layout.groups
        groups = sorted({row // each for row in rows})
        return [group * shape[1] + i for group in groups for i in kept.get(1, range(shape[1]))]

    def to_data(self) -> dict[str, Any]:
        """The plan as dicts with string keys, lists, numbers and strings."""
        return {
            "version": VERSION,
            "keep": {name: {str(axis): kept for axis, kept in axes.items()} for name, axes in self.keep.items()},
            "add": self.add,
            "merge": {name: [vars(m) | {"rows": list(m.rows)} for m in merges] for name, merges in self.merge.items()},
            "attributes": self.attributes,
            "shapes": self.shapes,
            "layouts": {name: [layout.groups, layout.transposed] for name, layout in self.layouts.items()},
            "positions": self.positions,
            "program": None if self.program is None else dict(vars(self.program)),
            "channels_last": self.channels_last,
        }

    def to_json(self) -> str:
        """The plan as one line of JSON."""
        return json.dumps(self.to_data(), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read a plan back.

        Raises:
            ValueError: If the text is not a plan of this version; the message says what is wrong.
        """
        try:
            return cls.from_data(json.loads(text))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"a plan must be JSON; {error}") from error

    @classmethod
    def from_data(cls, data: Any) -> "Plan":  # noqa: ANN401 -- whatever a file holds
        """Read a plan from the result of `to_data`, checking every entry.

        Raises:
            ValueError: If it is not a plan of this version; the message says what is wrong.
        """
        version = _dict(data, "a plan").get("version")
        if version != VERSION:
            raise ValueError(f"a plan must have version {VERSION}; got {version!r}.")
        plan = cls(
            keep={name: _kept(axes, name) for name, axes in _dict(data.get("keep"), "keep").items()},
            add={name: _floats(values, name) for name, values in _dict(data.get("add"), "add").items()},
            merge={
                name: [_merge(m, name) for m in _list(ms, name)]
                for name, ms in _dict(data.get("merge"), "merge").items()
            },
            attributes={
                path: {name: _int(value, name) for name, value in _dict(numbers, path).items()}
                for path, numbers in _dict(data.get("attributes"), "attributes").items()
            },
            shapes={name: _ints(shape, name) for name, shape in _dict(data.get("shapes"), "shapes").items()},
            layouts={name: _layout(entry, name) for name, entry in _dict(data.get("layouts"), "layouts").items()},
            positions={name: _int(count, name) for name, count in _dict(data.get("positions"), "positions").items()},
            program=_program(data.get("program")),
            channels_last=_bool(data.get("channels_last"), "channels_last"),
        )
        plan._check()
        return plan

    def _check(self) -> None:
        """Check that every index lies within its shape."""
        for name, axes in self.keep.items():
            shape = self._shape(name)
            for axis, kept in axes.items():
                inside = axis < len(shape) and len(kept) > 0 and kept[-1] < shape[axis]
                if not inside or any(a >= b for a, b in pairwise(kept)):
                    raise ValueError(f"the plan keeps indices of {name!r} that axis {axis} of {shape} does not have.")
        for name, values in self.add.items():
            if name in self.shapes and self.shape_after(name) != [len(values)]:
                raise ValueError(f"the plan adds {len(values)} values to {name!r}, which has a different number.")
        for name, merges in self.merge.items():
            shape = self._shape(name)
            for merge in merges:
                sizes = (shape[merge.axis], shape[1 - merge.axis]) if merge.axis < 2 <= len(shape) else (0, 0)
                outside = [i for i in (merge.into, *merge.source) if i >= sizes[0]]
                if outside or merge.rows[1] > sizes[1] or len(merge.source) != len(merge.scale):
                    raise ValueError(f"the plan merges inputs that {name!r} of shape {shape} does not have.")

    def _shape(self, name: str) -> list[int]:
        if name not in self.shapes:
            raise ValueError(f"the plan has no shape for {name!r}.")
        return self.shapes[name]


def _dict(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{what} must be an object in a plan; got {type(value).__name__}.")
    return value


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what!r} must have a list in a plan; got {type(value).__name__}.")
    return value


def _int(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{what!r} must have whole numbers in a plan; got {value!r}.")
    return value


def _bool(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{what!r} must be true or false in a plan; got {value!r}.")
    return value


def _ints(values: object, what: str) -> list[int]:
    return [_int(value, what) for value in _list(values, what)]


def _floats(values: object, what: str) -> list[float]:
    numbers = _list(values, what)
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in numbers):
        raise ValueError(f"{what!r} must have finite numbers in a plan.")
    return [float(number) for number in numbers]


def _kept(axes: object, name: str) -> Cut:
    found = _dict(axes, name)
    if not all(len(axis) == 1 and axis in "0123456789" for axis in found):
        raise ValueError(f"the plan keeps indices of {name!r} on the axes {list(found)}; they must be numbers.")
    return {int(axis): _ints(kept, name) for axis, kept in found.items()}


def _merge(value: object, name: str) -> Merge:
    found = _dict(value, name)
    rows = _ints(found.get("rows"), name)
    if len(rows) != 2:
        raise ValueError(f"a merge of {name!r} must have two `rows` in a plan; got {rows}.")
    axis, into = _int(found.get("axis"), name), _int(found.get("into"), name)
    return Merge(axis, into, _ints(found.get("source"), name), _floats(found.get("scale"), name), (rows[0], rows[1]))


def _layout(value: object, name: str) -> WeightLayout:
    entry = _list(value, name)
    if len(entry) != 2 or not isinstance(entry[1], bool) or _int(entry[0], name) < 1:
        raise ValueError(f"the layout of {name!r} must be a number of groups and a bool in a plan; got {entry}.")
    return WeightLayout(entry[0], entry[1])


def _program(value: object) -> ForwardProgram | None:
    if value is None:
        return None
    found = _dict(value, "program")
    removed = _list(found.get("removed"), "removed")
    if not all(isinstance(name, str) for name in removed):
        raise ValueError("`removed` must have names in a plan.")
    nodes = [_dict(node, "a node of the program") for node in _list(found.get("nodes"), "nodes")]
    buffers = {name: _dict(entry, name) for name, entry in _dict(found.get("buffers"), "buffers").items()}
    return ForwardProgram(nodes, buffers, removed)
