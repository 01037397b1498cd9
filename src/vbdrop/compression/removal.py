"""Remove from a traced model what it does not need, and check that the outputs are the same."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from vbdrop.analysis.graph import Traced
from vbdrop.compression.agreement import Check, checks
from vbdrop.compression.make_plan import make_plan
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.rewriting.apply_plan import apply_plan_
from vbdrop.compression.rewriting.memory_format import prefers_channels_last
from vbdrop.compression.rewriting.program import ProgramError

LARGEST_BATCH = 1024
"""A larger batch than this is not tried."""


class Removal(NamedTuple):
    """A small model, the plan that made it, and what was left with the reason."""

    model: nn.Module
    plan: Plan
    left: dict[str, str]


def remove(
    model: nn.Module, traced: Traced, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, rewrite: bool = True
) -> Removal:
    """Make a small copy of a masked model.

    The first plan counts whose model gives the same outputs: with the class's own forward if it may still hold (a trace
    does not show whether ``x.view(-1, 800)`` says 800 or computes it), then with a new forward, then with less removed.
    It is compared on the example inputs and on noise, also in batches for which the forward may take another way.

    Args:
        model: A plain model with exact zeros, in eval mode.
        traced: Its graph.
        args: Example inputs by position.
        kwargs: Example inputs by name.
        rewrite: Whether the forward may be replaced.
    """
    wanted = checks(model, args, kwargs, [size for size in traced.guards.values() if size <= LARGEST_BATCH])
    said = None
    reasons: dict[str, str] = {}
    for plan, left in _candidates(traced, model, rewrite):
        small, said = _trial(plan, model, wanted)
        if small is not None:
            return Removal(small, plan, left if plan.program else reasons | left)
        if plan.program:
            reasons = {"forward": f"it cannot be replaced, since then {said}"}
    return Removal(model, Plan(), {"model": f"it cannot be made smaller, since then {said}"})


def _trial(plan: Plan, model: nn.Module, wanted: list[Check]) -> tuple[nn.Module | None, str | None]:
    """The small model of a plan, or None and why it does not hold."""
    try:
        small = apply_plan_(plan, copy.deepcopy(model))
    except ProgramError as error:
        return None, str(error).rstrip(".")
    said = next((said for check in wanted if (said := check.disagreement(small))), None)
    return (small, None) if said is None else (None, said)


def _candidates(traced: Traced, model: nn.Module, rewrite: bool) -> Iterator[tuple[Plan, dict[str, str]]]:
    """Plans that may hold, the one that removes most first, and of two that remove the same the faster one."""
    if rewrite:
        draft = make_plan(traced, model)
        for plan in (draft.plan if draft.keeps_forward else None, draft.program):
            if plan is not None and prefers_channels_last(traced, model):
                yield replace(plan, channels_last=True), draft.left  # fails if the class's forward views images
            if plan is not None:
                yield plan, draft.left
    for frozen_shapes in (False, True):
        draft = make_plan(traced, model, rewritten=False, frozen_shapes=frozen_shapes)
        yield draft.plan, draft.left
