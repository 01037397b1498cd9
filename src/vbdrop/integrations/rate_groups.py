"""Rates in parameter groups of their own, in an optimizer that somebody else has built."""

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from vbdrop._torch_compat import inner_schedulers
from vbdrop.convert import param_groups
from vbdrop.objective import noisy_tensors
from vbdrop.objective.decay import rate_parameters

PER_GROUP = ("base_lrs", "lr_lambdas", "min_lrs", "_last_lr")
"""The lists in which the schedulers of torch have one entry per parameter group."""

LEARNING_RATES = {"base_lrs": "initial_lr", "_last_lr": "lr"}
"""Those of them that hold learning rates, with the option of the group from which they come."""


def separate_rates_(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    rate_lr: float | None = None,
    variance_lr: float | None = None,
    schedulers: Iterable[object] = (),
) -> None:
    """Let an optimizer train the rates of a model without weight decay, in place.

    Rates in a group with weight decay, or with ``rate_lr`` all rates, move to a new group with the same options but
    these. Rates that the optimizer does not have are added to it.

    Args:
        model: A converted model.
        optimizer: An optimizer that trains weights of the model.
        rate_lr: The learning rate of the rates; None for that of the group in which they are.
        variance_lr: The learning rate of the log variances and log alphas alone; the means of gates are left out.
        schedulers: The learning rate schedulers of the optimizer, which have to know of new groups.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(8, 4)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.1)
        >>> separate_rates_(model, optimizer, rate_lr=0.01)
        >>> [(len(group["params"]), group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
        [(2, 0.001, 0.1), (1, 0.01, 0.0)]
    """
    rate_ids = rate_parameters(model)
    _move_(optimizer, set(rate_ids), rate_lr, schedulers)
    fresh = [parameter for group in param_groups(model, existing=optimizer) for parameter in group["params"]]
    if missing := [parameter for parameter in fresh if id(parameter) in rate_ids]:
        _add_group_(optimizer, _options(optimizer.param_groups[0], missing, rate_lr), schedulers, like=0)
    if variance_lr is not None:
        _move_(optimizer, {id(entry.rate) for _, entry in noisy_tensors(model)}, variance_lr, schedulers)


def _move_(optimizer: Optimizer, ids: set[int], lr: float | None, schedulers: Iterable[object]) -> None:
    """Move parameters into groups of their own, without weight decay: all of them with ``lr``, else decayed ones."""
    for index, group in enumerate(list(optimizer.param_groups)):
        found = [parameter for parameter in group["params"] if id(parameter) in ids]
        if not found or not (group.get("weight_decay") or lr is not None):
            continue
        if len(found) == len(group["params"]):
            known = group.get("initial_lr") == lr  # a scheduler has `lr` in hand
            group.update(_options(group, found, None if known else lr))
            continue
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in ids]
        _add_group_(optimizer, _options(group, found, lr), schedulers, like=index)


def _options(group: dict[str, Any], rates: list[Any], rate_lr: float | None) -> dict[str, Any]:
    """The options of a group for rates that were, or could have been, in it."""
    changed: dict[str, Any] = {"params": rates}
    if "weight_decay" in group:
        changed["weight_decay"] = 0.0
    if rate_lr is not None:
        changed |= {name: rate_lr for name in ("lr", "initial_lr") if name in group}
    return {**group, **changed}


def _add_group_(optimizer: Optimizer, group: dict[str, Any], schedulers: Iterable[object], like: int) -> None:
    """Add a group to an optimizer and to its schedulers, for which it is as another one."""
    optimizer.add_param_group(group)
    for scheduler in schedulers:
        _tell_(scheduler, group, len(optimizer.param_groups) - 1, like)


def _tell_(scheduler: object, group: dict[str, Any], before: int, like: int) -> None:
    for inner in inner_schedulers(scheduler):
        _tell_(inner, group, before, like)
    for name in PER_GROUP:
        values = getattr(scheduler, name, None)
        if isinstance(values, list) and len(values) == before:
            option = LEARNING_RATES.get(name)
            values.append(values[like] if option is None else group.get(option, values[like]))
