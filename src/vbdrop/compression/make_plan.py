"""From a traced model to a plan: constants, liveness, decisions and the new forward, in this order."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import Traced
from vbdrop.analysis.liveness import Liveness, find_live
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.planning.plan_from_liveness import columns, decide
from vbdrop.compression.rewriting.program import ProgramError
from vbdrop.compression.rewriting.small_forward import program_of, rewrite


@dataclass(frozen=True)
class Draft:
    """The result of one analysis of a model.

    Attributes:
        plan: The plan, without a program.
        program: The same plan with a program, or None if the forward cannot be written as one.
        keeps_forward: Whether the original forward may still be valid, which only a trial can show.
        left: What keeps its channels, and why.
        liveness: Which units are kept.
    """

    plan: Plan
    program: Plan | None
    keeps_forward: bool
    left: dict[str, str]
    liveness: Liveness


def make_plan(
    traced: Traced,
    model: nn.Module,
    *,
    rewritten: bool = True,
    frozen_shapes: bool = False,
    fixed_sizes: bool = False,
    split_heads: bool = False,
    round_to: int = 1,
    stays: Mapping[str, Collection[int]] | None = None,
) -> Draft:
    """Find what can be removed from a model.

    Args:
        traced: The model's graph.
        model: The model, or one of the same structure with other weights.
        rewritten: Whether the forward may be replaced; if not, only what leaves it valid is removed.
        frozen_shapes: Whether sizes that are hard-coded in the forward must stay too.
        fixed_sizes: Whether a new forward refuses inputs of sizes other than the traced ones, except for the batch.
        split_heads: Whether heads may lose single features; `vbdrop.compression.own_forward` then checks whether the
            original forward still scales its scores as before.
        round_to: The widths of layers that lose units are multiples of this.
        stays: Weight -> the inputs of it that must not be removed.

    Example:
        >>> from vbdrop.analysis.graph import trace
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
        >>> with torch.no_grad():
        ...     _ = model[0].weight[1].zero_()
        >>> draft = make_plan(trace(model, (torch.zeros(4, 2),)), model)
        >>> draft.plan.attributes
        {'0': {'out_features': 2}, '2': {'in_features': 2}}
    """
    facts = propagate(traced, model, rewrite=rewritten, frozen_shapes=frozen_shapes, split_heads=split_heads)
    for product in facts.products:
        kept = (stays or {}).get(product.weight, ())
        facts.pinned.append(product.inputs.units[torch.tensor(sorted(kept), dtype=torch.long)])
    liveness = find_live(facts, round_to)
    inputs = columns(liveness)
    plan = decide(liveness, inputs)
    left = dict(facts.left)
    program = None
    keeps_forward = not rewritten
    try:
        writer = rewrite(liveness, inputs, plan, fixed_sizes=fixed_sizes)
        keeps_forward = not writer.new_operations
        if rewritten:
            program = replace(plan, program=program_of(writer))
    except ProgramError as error:
        left["forward"] = f"it cannot be replaced: {error}"
    return Draft(plan, program, keeps_forward, left, liveness)
