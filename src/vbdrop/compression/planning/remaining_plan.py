"""Successive plans: what remains of a plan after an earlier one has been applied."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

from vbdrop.analysis.layer_shapes import owner
from vbdrop.compression.planning.plan import Cut, Merge, Plan, WeightLayout


def relative(plan: Plan, done: Plan) -> Plan | None:
    """The plan that turns the result of one plan into the result of another.

    Args:
        plan: A plan for the original model, whose folds and merges have not been applied yet.
        done: The plan for the same original model that has already been applied.

    Returns:
        A plan for the model in its current state, or None if something that was removed would be needed again.

    Example:
        >>> before = Plan(keep={"weight": {0: [1, 4, 6]}}, shapes={"weight": [8, 2]})
        >>> after = Plan(keep={"weight": {0: [1, 6]}}, shapes={"weight": [8, 2]})
        >>> step = relative(after, before)
        >>> step.keep, step.shapes
        ({'weight': {0: [0, 2]}}, {'weight': [3, 2]})
        >>> relative(before, after) is None
        True
    """
    if any(not _goes_on(plan.keep.get(name, {}), axes) for name, axes in done.keep.items()):
        return None
    keep = {name: _among(axes, done.keep.get(name, {})) for name, axes in plan.keep.items()}
    return replace(
        plan,
        keep={name: axes for name, axes in keep.items() if axes},
        merge={name: [_moved(m, done.keep.get(name, {})) for m in merges] for name, merges in plan.merge.items()},
        shapes={name: done.shape_after(name) if name in done.shapes else shape for name, shape in plan.shapes.items()},
        layouts={name: _layout(done.attributes, name, layout) for name, layout in plan.layouts.items()},
    )


def _goes_on(axes: Cut, before: Cut) -> bool:
    """Whether the plan keeps nothing that has already been removed."""
    return all(axis in axes and set(axes[axis]) <= set(kept) for axis, kept in before.items())


def _among(axes: Cut, before: Cut) -> Cut:
    """The kept indices as positions among the remaining ones, on the axes that lose something."""
    cuts: Cut = {}
    for axis, kept in axes.items():
        if axis not in before:
            cuts[axis] = kept
        elif len(kept) < len(before[axis]):
            cuts[axis] = [bisect_left(before[axis], index) for index in kept]
    return cuts


def _moved(merge: Merge, before: Cut) -> Merge:
    """A merge with the current positions of its inputs and outputs."""

    def position(axis: int, index: int) -> int:
        return bisect_left(before[axis], index) if axis in before else index

    inputs, outputs = merge.axis, 1 - merge.axis
    return replace(
        merge,
        into=position(inputs, merge.into),
        source=[position(inputs, index) for index in merge.source],
        rows=(position(outputs, merge.rows[0]), position(outputs, merge.rows[1])),
    )


def _layout(attributes: Mapping[str, Mapping[str, int]], weight: str, layout: WeightLayout) -> WeightLayout:
    """The layout with the remaining groups."""
    return replace(layout, groups=attributes.get(owner(weight), {}).get("groups", layout.groups))
