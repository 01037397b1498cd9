"""Remove from a traced model what it does not need, and check that the outputs are the same."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vbdrop.analysis.dead_units import live_at_best, why_dead_units_stay
from vbdrop.analysis.graph import Traced
from vbdrop.analysis.layer_shapes import beside
from vbdrop.analysis.size_guards import OtherSize, other_sizes
from vbdrop.compression.agreement import DIFFERS, Check, OtherSizes, at_other_sizes, checks
from vbdrop.compression.make_plan import Draft, make_plan
from vbdrop.compression.own_forward import changed_computation
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.rewriting.apply_plan import apply_plan_
from vbdrop.compression.rewriting.memory_format import is_channels_last
from vbdrop.compression.rewriting.program import ProgramError
from vbdrop.compression.unread_outputs import TriedWeight, unread_outputs

LARGEST_BATCH = 1024
"""Batches larger than this are not tried."""


FEW_EXAMPLES = 3
"""The batch size on which units are tried."""

REFUSES = "so does the model that was given"

REWRITE_GAIN = 0.1
"""The default share of the weights by which a new forward must beat the original one in order to replace it."""


class Removal(NamedTuple):
    """A small model, the plan that made it, and what was left and why."""

    model: nn.Module
    plan: Plan
    left: dict[str, str]


def remove(
    model: nn.Module,
    traced: Traced,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    rewrite: bool = True,
    rewrite_gain: float = 0.0,
    round_to: int = 1,
    judge: nn.Module | None = None,
    sizes: Sequence[OtherSize] | None = None,
) -> Removal:
    """Make a small copy of a masked model.

    The first plan whose model gives the judge's outputs is used: with the original forward if it may still be valid (a
    trace does not show whether ``x.view(-1, 800)`` hard-codes 800 or computes it), then with a new forward, then with
    less removed. Outputs are compared on the example inputs and on noise, including batches and sizes at which the
    forward may take another branch. A new forward that is valid only for the sizes of the example refuses others.

    Args:
        model: A plain model with exact zeros, in eval mode.
        traced: Its graph.
        args: Example inputs by position.
        kwargs: Example inputs by name.
        rewrite: Whether the forward may be replaced.
        rewrite_gain: The share of the weights by which a new forward must beat the original one to replace it.
        round_to: The widths of layers that lose units are multiples of this.
        judge: The model whose outputs count; None for the masked model itself.
        sizes: Other input sizes to try; None to find them here.
    """
    judge = model if judge is None else judge
    wanted = checks(judge, args, kwargs, [size for size in traced.guards.values() if size <= LARGEST_BATCH])

    @cache
    def others() -> OtherSizes:
        return at_other_sizes(judge, args, kwargs, other_sizes(model, args, kwargs) if sizes is None else sizes)

    said = None
    reasons: dict[str, str] = {}
    for plan, draft, fixed_sizes in _candidates(traced, model, rewrite, rewrite_gain, round_to):
        if fixed_sizes and "sizes" not in reasons:
            continue
        splits = draft.liveness.splits_heads
        own = plan.program is None and _changes(plan)
        changed = partial(changed_computation, traced, draft.liveness, args=args, kwargs=kwargs) if own else None
        small, said = _trial(plan, model, wanted, changed)
        if small is not None and not fixed_sizes and _changes(plan):
            said = others().objection(small) or (REFUSES if plan.program and _refuses(traced) else None)
            if said and plan.program:
                reasons["sizes"] = f"the new forward takes inputs of the example's sizes only: {said}"
                continue
            small = small if said is None else None
        if small is not None:
            dead = _dead(traced, model, draft, plan, _unread(small, draft, wanted))
            reasons = {place: reason for place, reason in reasons.items() if place != "heads" or not splits}
            return Removal(small, plan, reasons | draft.left | dead)
        if splits and not plan.program:
            reasons["heads"] = f"they keep all of their features, since otherwise {said}"
        if plan.program:
            reasons = {place: reason for place, reason in reasons.items() if place == "heads"}
            reasons["forward"] = f"it cannot be replaced, since then {said}"
    return Removal(model, Plan(), {"model": f"it cannot be made smaller, since then {said}"})


def likely_plan(traced: Traced, model: nn.Module, *, rewrite: bool = True, round_to: int = 1) -> Plan:
    """The plan that `compress` tries first for a plain model with exact zeros, without the trial.

    Heads keep all of their features, since only a trial shows whether they may lose some: the plan never removes too
    much.

    Example:
        >>> from vbdrop.analysis.graph import trace
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
        >>> with torch.no_grad():
        ...     _ = model[0].weight[1].zero_()
        >>> likely_plan(trace(model, (torch.zeros(4, 2),)), model).shape_after("0.weight")
        [2, 2]
    """
    plan, _, _ = next(_candidates(traced, model, rewrite, REWRITE_GAIN, round_to, split_heads=False))
    return plan


def _trial(
    plan: Plan, model: nn.Module, wanted: list[Check], objection: Callable[[nn.Module], str | None] | None
) -> tuple[nn.Module | None, str | None]:
    """The small model of a plan, or None and why it is not valid."""
    try:
        small = apply_plan_(plan, copy.deepcopy(model))
    except ProgramError as error:
        return None, str(error).rstrip(".")
    except Exception as error:  # a module that holds its parameters in its own way may raise anything
        return None, f"the plan cannot be applied, {type(error).__name__}: {error}".rstrip(".")
    said = next((said for check in wanted if (said := check.disagreement(small))), None)
    if objection is not None and (said is None or DIFFERS in said):
        said = objection(small) or said
    return (small, None) if said is None else (None, said)


def _refuses(traced: Traced) -> bool:
    """Whether a forward, such as one of an earlier compression, checks the sizes of its inputs."""
    return any(node.target is torch.ops.aten._assert_scalar.default for node in traced.graph.nodes)


def _changes(plan: Plan) -> bool:
    """Whether a plan changes anything."""
    return bool(plan.keep or plan.add or plan.merge or plan.program)


def _weights_left(plan: Plan, model: nn.Module) -> int:
    """The number of weights that a plan keeps."""
    gone = set(plan.program.removed) if plan.program else set()
    every = [(name, p) for name, p in model.named_parameters(remove_duplicate=False) if p.dim() > 1]
    kept = {id(p): name for name, p in every if name not in gone}  # a tied weight is counted under one of its names
    weights = {name: list(p.shape) for name, p in every if kept.get(id(p)) == name}
    return sum(math.prod(plan.shape_after(name) if name in plan.shapes else shape) for name, shape in weights.items())


def _candidates(
    traced: Traced, model: nn.Module, rewrite: bool, rewrite_gain: float, round_to: int, *, split_heads: bool = True
) -> Iterator[tuple[Plan, Draft, bool]]:
    """Plans that may be valid, largest removal first, each with whether its forward refuses other sizes.

    A plan with a new forward comes after plans with the original forward that remove nearly as much.
    """
    channels_last, make = is_channels_last(model), partial(make_plan, traced, model, round_to=round_to)
    draft = make(rewritten=rewrite, split_heads=split_heads)
    ways = (True, False) if draft.liveness.splits_heads else (False,)
    own = [partial(make, rewritten=False, split_heads=split) for split in ways]
    own.append(partial(make, rewritten=False, frozen_shapes=True))
    for split in ways if rewrite else ():
        if split_heads and draft.liveness.facts.blocks:  # without heads, both are the same
            draft = make(split_heads=split)
        if draft.keeps_forward:
            yield replace(draft.plan, channels_last=channels_last), draft, False
        if draft.program is not None and rewrite_gain > 0:
            small = _weights_left(draft.program, model)
            while own and small > (1 - rewrite_gain) * _weights_left((kept := own[0]()).plan, model):
                own.pop(0)
                more = 100 * (1 - small / _weights_left(kept.plan, model))
                reason = f"it is kept, since a new one would remove only {max(0.0, more):.0f} % more of the weights"
                kept = replace(kept, left=kept.left | {"forward": reason} if more > 0 else kept.left)
                yield replace(kept.plan, channels_last=channels_last), kept, False
        if draft.program is not None:
            yield replace(draft.program, channels_last=channels_last), draft, False
            fixed = make(fixed_sizes=True, split_heads=split)
            if fixed.program is not None:
                yield replace(fixed.program, channels_last=channels_last), fixed, True
    for own_forward in own:
        draft = own_forward()
        yield replace(draft.plan, channels_last=channels_last), draft, False


def _unread(small: nn.Module, draft: Draft, wanted: list[Check]) -> dict[str, Tensor]:
    """Weight -> which of its outputs in the small model have no effect."""
    check = min(wanted, key=lambda check: abs(check.batch - FEW_EXAMPLES))
    sites = [uses.first for uses in draft.liveness.uses.values()]
    products = [TriedWeight(site.weight, site.bias or beside(site.weight, "bias"), site.transposed) for site in sites]
    return unread_outputs(small, check.args, check.kwargs, products)


def _dead(traced: Traced, model: nn.Module, draft: Draft, plan: Plan, unread: Mapping[str, Tensor]) -> dict[str, str]:
    """What is dead but kept, with the reason."""
    gone = set(plan.program.removed) if plan.program else set()
    kept = {weight: plan.kept_outputs(weight) for weight in plan.positions.keys() & plan.shapes.keys() - gone}
    kept |= dict.fromkeys(unread.keys() - kept.keys())
    return why_dead_units_stay(live_at_best(traced, model), draft.liveness, kept, unread)
