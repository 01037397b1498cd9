"""Shrinks a model during distributed training, with one plan for all ranks."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from vbdrop.compression import Plan, apply_plan_, compress
from vbdrop.targets.run_file import digest


def shrink_ranks_(
    wrapped: DistributedDataParallel,
    example_inputs: Any,  # noqa: ANN401 -- as compress takes them
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    plans: list[Plan] | None = None,
    **options: Any,  # noqa: ANN401 -- as DistributedDataParallel takes them
) -> DistributedDataParallel:
    """Remove what is dead from the model and the optimizer of every rank, and wrap the model again.

    Call it on every rank at the same step. The first rank makes the plan and sends it to the others.

    Args:
        wrapped: The model inside `torch.nn.parallel.DistributedDataParallel`; it cannot be used afterwards.
        example_inputs: Inputs that the model accepts.
        optimizer: The optimizer of this rank, or a sequence of several.
        plans: A list to which the plan is appended, for a checkpoint: `vbdrop.apply_plan_` with each plan in turn gives
            a fresh model and its optimizer the shapes of this one.
        options: Arguments for the new `DistributedDataParallel`.

    Returns:
        The smaller model, wrapped; the same object as before if nothing was dead.

    Raises:
        RuntimeError: If the ranks have different models or the first rank cannot make a plan; nothing has been changed
            then. Also if the smaller models differ.
    """
    if not isinstance(wrapped, DistributedDataParallel):
        raise TypeError(f"`wrapped` must be a DistributedDataParallel; got {type(wrapped).__name__}.")
    model: nn.Module = wrapped.module
    group = wrapped.process_group
    _check_same(digest(model), "the model", group)
    plan = _plan_of_first(model, example_inputs, group)
    if not plan.keep:
        return wrapped
    apply_plan_(plan, model, optimizer)
    _check_same(digest(model), "the smaller model", group)
    if plans is not None:
        plans.append(plan)
    return DistributedDataParallel(model, process_group=group, **options)


def _plan_of_first(model: nn.Module, example_inputs: Any, group: Any) -> Plan:  # noqa: ANN401
    """The plan of the first rank, sent to all ranks; if that rank fails, all of them raise an error."""
    said: list[str | None] = [None, None]
    if dist.get_rank(group) == 0:
        try:
            with torch.random.fork_rng(devices=[]):
                said[0] = compress(model, example_inputs, rewrite=False, recalibrate=False).plan.to_json()
        except Exception as error:  # the other ranks wait for an answer
            said[1] = f"{type(error).__name__}: {error}"
    dist.broadcast_object_list(said, group=group, group_src=0)
    if said[0] is None:
        raise RuntimeError(f"the first rank could not make a plan: {said[1]}")
    return Plan.from_json(said[0])


def _check_same(own: str, what: str, group: Any) -> None:  # noqa: ANN401
    """Check that all ranks have the same value."""
    said: list[str | None] = [None] * dist.get_world_size(group)
    dist.all_gather_object(said, own, group=group)
    others = [rank for rank, each in enumerate(said) if each != said[0]]
    if others:
        raise RuntimeError(
            f"{what} must be the same on all ranks; on {', '.join(map(str, others))} it differs from that of rank 0. "
            "Were all gradients reduced, and all ranks built from the same state?"
        )
