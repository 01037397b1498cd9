"""A plan in few bytes: only what is needed to cut a fresh model, with its lists of indices stored separately.

The values that a plan folds are already in the tensors of the small model, so the compact form keeps only where the
model is cut, which biases are new, and the program. It refers to lists of indices by number: each distinct list is
stored once.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from vbdrop.compression.files.format import FileFormatError
from vbdrop.compression.files.limits import Limits
from vbdrop.compression.files.rice_code import Positions
from vbdrop.compression.planning.plan import VERSION, ForwardProgram, Plan

_PROGRAM = {"nodes", "buffers", "removed"}

Lists = dict[tuple[int, ...], int]
"""The distinct lists of indices of a plan -> their numbers, in order of first use."""


def shorten(plan: Plan) -> tuple[dict[str, Any], list[Positions]]:
    """A plan as compact data, and the lists that it refers to by number.

    A buffer of the program that is not a list of increasing positions is stored among the model's tensors.

    Example:
        >>> plan = Plan(keep={"weight": {0: [0, 2]}, "bias": {0: [0, 2]}}, shapes={"weight": [3, 4], "bias": [3]})
        >>> data, (kept,) = shorten(plan)
        >>> data, kept.tolist()
        ({'cut': {'weight': [[3, 4], {'0': 0}], 'bias': [[3], {'0': 0}]}}, [0, 2])
    """
    lists: Lists = {}
    cut = {
        name: [shape, {str(axis): _number(lists, kept) for axis, kept in plan.keep.get(name, {}).items()}]
        for name, shape in plan.shapes.items()
    }
    data: dict[str, Any] = {
        "cut": {name: entry if entry[1] else entry[:1] for name, entry in cut.items()},
        "new": [name for name in plan.add if name not in plan.shapes],
        "set": plan.attributes,
        "channels_last": plan.channels_last,
    }
    if plan.program is not None:
        data["nodes"] = _short_nodes(plan.program.nodes)
        data["buffers"] = {name: _short_buffer(entry, lists) for name, entry in plan.program.buffers.items()}
        data["removed"] = plan.program.removed
    return {key: value for key, value in data.items() if value}, [np.array(each, dtype=np.int64) for each in lists]


def lengthen(
    data: Any,  # noqa: ANN401 -- whatever a file holds
    lists: list[Positions],
    tensors: Mapping[str, Tensor],
    limits: Limits = Limits(0),  # noqa: B008 -- it cannot change
) -> Plan:
    """The plan that `shorten` wrote, without the values that it folds.

    Args:
        data: The content of a file.
        lists: Its lists of indices.
        tensors: Its tensors, which give the lengths of new biases and the contents of other buffers.
        limits: How much the file may ask for.

    Raises:
        FileFormatError: If it is not such a plan; the message says what is wrong.
    """
    try:
        program = None
        limits.check_indices(_named_indices(data, lists, tensors))
        limits.check_nodes(len(data.get("nodes", [])))
        indices: dict[int, list[int]] = {}
        if _PROGRAM & data.keys():
            entries = data.get("buffers", {}).items()
            buffers = {name: _long_buffer(name, entry, lists, indices, tensors) for name, entry in entries}
            program = vars(ForwardProgram(_long_nodes(data["nodes"]), buffers, data.get("removed", [])))
        cut = data.get("cut", {})
        return Plan.from_data(
            {
                "version": VERSION,
                "keep": {name: _long_cut(entry[1], lists, indices) for name, entry in cut.items() if len(entry) > 1},
                "add": {name: [0.0] * tensors[name].numel() for name in data.get("new", [])},
                "merge": {},
                "attributes": data.get("set", {}),
                "shapes": {name: entry[0] for name, entry in cut.items()},
                "layouts": {},
                "positions": {},
                "program": program,
                "channels_last": data.get("channels_last", False),
            }
        )
    except FileFormatError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise FileFormatError(f"the plan in the file cannot be read: {error}") from error


def _named_indices(data: dict[str, Any], lists: list[Positions], tensors: Mapping[str, Tensor]) -> int:
    """The number of indices in the cuts, buffers and new biases of a plan; a list counts each time it is named."""
    numbers = [number for entry in data.get("cut", {}).values() if len(entry) > 1 for number in entry[1].values()]
    numbers += [entry[2] for entry in data.get("buffers", {}).values() if len(entry) > 2]
    return sum(len(lists[number]) for number in numbers) + sum(tensors[name].numel() for name in data.get("new", []))


def _number(lists: Lists, indices: list[int]) -> int:
    return lists.setdefault(tuple(indices), len(lists))


def _long_cut(axes: dict[str, int], lists: list[Positions], indices: dict[int, list[int]]) -> dict[str, list[int]]:
    return {axis: _listed(lists, number, indices) for axis, number in axes.items()}


def _listed(lists: list[Positions], number: int, indices: dict[int, list[int]]) -> list[int]:
    """A list by its number; all uses share the same list object."""
    if not 0 <= number < len(lists):
        raise IndexError(f"there is no list of indices {number}")
    if number not in indices:
        indices[number] = lists[number].tolist()
    return indices[number]


def _short_buffer(entry: dict[str, Any], lists: Lists) -> list[Any]:
    """[dtype, shape], and the number of the list if the buffer is one."""
    values = entry["data"]
    whole = all(type(value) is int and value >= 0 for value in values)
    if whole and values and all(a < b for a, b in pairwise(values)):
        return [entry["dtype"], entry["shape"], _number(lists, values)]
    return [entry["dtype"], entry["shape"]]


def _long_buffer(
    name: str, entry: list[Any], lists: list[Positions], indices: dict[int, list[int]], tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    dtype, shape, *numbers = entry
    if len(numbers) > 1:
        raise ValueError(f"the buffer {name!r} must be one list of indices; got {len(numbers)}")
    values = _listed(lists, numbers[0], indices) if numbers else tensors[name]
    return {"dtype": dtype, "shape": shape, "data": values}


def _short_nodes(nodes: list[dict[str, Any]]) -> list[list[Any]]:
    """[name, operation, target, arguments, named arguments], without empty parts at the end."""
    numbers = {node["name"]: number for number, node in enumerate(nodes)}

    def shortened(value: Any) -> Any:  # noqa: ANN401 -- an argument can be anything
        if isinstance(value, list):
            return [shortened(item) for item in value]
        if isinstance(value, dict):
            return {"#": numbers[value["node"]]} if "node" in value else {k: shortened(v) for k, v in value.items()}
        return value

    short = []
    for node in nodes:
        parts = [node["name"], node["op"], node["target"], shortened(node["args"]), shortened(node["kwargs"])]
        while not parts[-1]:
            parts.pop()
        short.append(parts)
    return short


def _long_nodes(nodes: list[list[Any]]) -> list[dict[str, Any]]:
    names = [node[0] for node in nodes]
    if [node[1] for node in nodes].index("output") != len(nodes) - 1:
        raise ValueError("a program must end with its output")

    def lengthened(value: Any) -> Any:  # noqa: ANN401 -- an argument can be anything
        if isinstance(value, list):
            return [lengthened(item) for item in value]
        if isinstance(value, dict):
            return {"node": names[value["#"]]} if "#" in value else {k: lengthened(v) for k, v in value.items()}
        return value

    long = []
    for node in nodes:
        name, operation, target, *rest = node
        args, kwargs = (lengthened(part) for part in ([*rest, {}] if rest else [[], {}])[:2])
        long.append({"name": name, "op": operation, "target": target, "args": args, "kwargs": kwargs})
    return long
