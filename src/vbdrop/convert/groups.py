"""Parameter groups for an optimizer: the rates in a separate group, without weight decay."""

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from vbdrop.layers.lost_gates import check_watched
from vbdrop.objective.decay import rate_parameters


def param_groups(
    model: nn.Module,
    *,
    lr: float | Tensor | None = None,
    rate_lr: float | Tensor | None = None,
    weight_decay: float | None = None,
    existing: Optimizer | None = None,
) -> list[dict[str, Any]]:
    """The model's parameters in groups for an optimizer: the weights, and the rates.

    The rates (``log_sigma2``, ``log_alpha`` and both parameters of a gate) get no weight decay, which would pull them
    towards a dropout rate that nobody asked for.

    Args:
        model: A converted model.
        lr: The learning rate of the weights; None for the optimizer's own.
        rate_lr: The learning rate of the rates; None means the same as ``lr``.
        weight_decay: The weight decay of the weights; None for the optimizer's own.
        existing: An optimizer that was built before the conversion; only parameters that it lacks are returned.

    Returns:
        A list for the optimizer's constructor, or for `torch.optim.Optimizer.add_param_group`, group by group. If both
        groups have the same options, as with ``weight_decay=0``, they are merged: the optimizer's step is then faster.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(8, 4)
        >>> optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> for group in vbdrop.param_groups(model, rate_lr=1e-2, existing=optimizer):
        ...     optimizer.add_param_group(group)
        >>> [len(group["params"]) for group in optimizer.param_groups]
        [2, 1]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
    if existing is not None and not isinstance(existing, Optimizer):
        raise TypeError(f"`existing` must be a torch.optim.Optimizer or None; got {type(existing).__name__}.")
    for name, value in (("lr", lr), ("rate_lr", rate_lr), ("weight_decay", weight_decay)):
        is_number = isinstance(value, int | float | Tensor) and not isinstance(value, bool)
        if value is not None and not (is_number and value >= 0):
            raise ValueError(f"`{name}` must be a number, at least 0, or None; got {value!r}.")
    check_watched(model)
    rate_ids = rate_parameters(model)
    known = {id(p) for group in existing.param_groups for p in group["params"]} if existing else set()
    fresh = [p for p in model.parameters() if id(p) not in known]
    weights: dict[str, Any] = {"params": [p for p in fresh if id(p) not in rate_ids]}
    rates: dict[str, Any] = {"params": [p for p in fresh if id(p) in rate_ids], "weight_decay": 0.0}
    if lr is not None:
        weights["lr"] = rates["lr"] = lr
    if rate_lr is not None:
        rates["lr"] = rate_lr
    if weight_decay is not None:
        weights["weight_decay"] = weight_decay
    if {**weights, "params": None} == {**rates, "params": None}:
        return [{**rates, "params": fresh}]
    return [group for group in (weights, rates) if group["params"]]
