"""Moves the rates into their own parameter groups, in an optimizer that a trainer has built."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from vbdrop._torch_compat import inner_schedulers
from vbdrop.convert import param_groups
from vbdrop.objective import noisy_tensors
from vbdrop.objective.decay import rate_parameters

LEARNING_RATES = ("lr", "initial_lr", "max_lr", "min_lr", "swa_lr")
"""The options of a group that are learning rates; schedulers add all but the first."""

SCALED = ("base_lrs", "max_lrs", "min_lrs", "max_lr", "min_lr")
"""The attributes of schedulers that list one learning rate per parameter group."""

COPIED = ("lr_lambdas", "base_momentums", "max_momentums", "_last_lr")
"""The attributes of schedulers that list something else per group; ``_last_lr`` follows the group's ``lr``."""


def separate_rates_(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    rate_lr: float | None = None,
    variance_lr: float | None = None,
    schedulers: Iterable[object] = (),
    others: Iterable[Optimizer] = (),
) -> None:
    """Make an optimizer train the rates of a model without weight decay, in place.

    Rates in a group with weight decay (with ``rate_lr``, all rates) move to a new group that is otherwise the same.
    Rates that the optimizer does not have are added to it.

    Args:
        model: A converted model.
        optimizer: An optimizer that trains weights of the model.
        rate_lr: The learning rate of the rates; None for that of their current group. Schedulers change it as they
            change that of the weights; with `torch.optim.lr_scheduler.OneCycleLR` it is the largest one.
        variance_lr: The learning rate of only the log variances and log alphas, not of the means of gates.
        schedulers: The learning rate schedulers, which must be extended to new groups; those of other optimizers are
            ignored.
        others: The other optimizers of the model; rates that they train are not added to this one.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(8, 4)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.1)
        >>> separate_rates_(model, optimizer, rate_lr=0.01)
        >>> [(len(group["params"]), group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
        [(2, 0.001, 0.1), (1, 0.01, 0.0)]
    """
    rate_ids, lists = rate_parameters(model), _per_group_lists(optimizer, schedulers)
    _move_(optimizer, set(rate_ids), rate_lr, lists)
    elsewhere = {id(parameter) for other in others for group in other.param_groups for parameter in group["params"]}
    fresh = [parameter for group in param_groups(model, existing=optimizer) for parameter in group["params"]]
    if missing := [p for p in fresh if id(p) in rate_ids and id(p) not in elsewhere]:
        _make_rate_group_(optimizer, _add_group_(optimizer, missing, lists, like=0), rate_lr, lists)
    if variance_lr is not None:
        _move_(optimizer, {id(entry.rate) for _, entry in noisy_tensors(model)}, variance_lr, lists)


def base_lr(group: Mapping[str, Any]) -> float:
    """The learning rate of a group before its schedulers change it; with `OneCycleLR`, the largest.

    Example:
        >>> base_lr({"lr": 0.01, "initial_lr": 0.1})
        0.1
    """
    return float(group.get("max_lr", group.get("initial_lr", group["lr"])))


def _per_group_lists(optimizer: Optimizer, schedulers: Iterable[object]) -> list[tuple[str, list[Any]]]:
    """The lists, each once and with its name, in which schedulers of an optimizer have one entry per group."""
    found: dict[int, tuple[str, list[Any]]] = {}
    for scheduler in schedulers:
        if getattr(scheduler, "optimizer", optimizer) is optimizer:
            found |= {
                id(values): (name, values) for name, values in _per_group_lists(optimizer, inner_schedulers(scheduler))
            }
            for name in (*SCALED, *COPIED):
                values = getattr(scheduler, name, None)
                if isinstance(values, list) and len(values) == len(optimizer.param_groups):
                    found[id(values)] = (name, values)
    return list(found.values())


def _move_(optimizer: Optimizer, ids: set[int], lr: float | None, lists: list[tuple[str, list[Any]]]) -> None:
    """Move parameters into their own groups, without weight decay: all of them with ``lr``, else only decayed ones."""
    for index, group in enumerate(list(optimizer.param_groups)):
        found = [parameter for parameter in group["params"] if id(parameter) in ids]
        if not found or not (group.get("weight_decay") or lr is not None):
            continue
        place = index
        if len(found) < len(group["params"]):
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in ids]
            place = _add_group_(optimizer, found, lists, like=index)
        _make_rate_group_(optimizer, place, lr, lists)


def _add_group_(optimizer: Optimizer, parameters: list[Any], lists: list[tuple[str, list[Any]]], like: int) -> int:
    """Add a group with the options and schedules of another one; return its index."""
    optimizer.add_param_group({**optimizer.param_groups[like], "params": parameters})
    for _, values in lists:
        values.append(values[like])
    return len(optimizer.param_groups) - 1


def _make_rate_group_(optimizer: Optimizer, index: int, lr: float | None, lists: list[tuple[str, list[Any]]]) -> None:
    """Set the weight decay of a group to 0, and scale its learning rate and schedules so that it starts from ``lr``."""
    group = optimizer.param_groups[index]
    if "weight_decay" in group:
        group["weight_decay"] = 0.0
    if lr is None:
        return
    base = base_lr(group)
    group.update({name: _scaled(group[name], base, lr) for name in LEARNING_RATES if name in group})
    for name, values in lists:
        if name in SCALED:
            values[index] = _scaled(values[index], base, lr)
        elif name == "_last_lr":
            values[index] = group["lr"]


def _scaled(value: Any, base: float, lr: float) -> Any:  # noqa: ANN401 -- a float, or a tensor if the learning rate is one
    return lr * (value / base) if base else lr
