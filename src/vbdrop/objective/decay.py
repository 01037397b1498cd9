"""Rates under weight decay, which pulls them towards a dropout rate that nobody asked for."""

import warnings
import weakref
from functools import partial
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from vbdrop.layers import Variational


def rate_parameters(model: nn.Module) -> dict[int, str]:
    """The parameters that set dropout rates, by id, with their names: log variances, log alphas, and gates.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> _ = vbdrop.convert_(model, vbdrop.Units())
        >>> list(rate_parameters(model).values())
        ['0.gate.weight', '0.gate.log_sigma2']
    """
    return {
        id(parameter): f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        if isinstance(module, Variational)
        for name, parameter in module._parameters.items()
        if parameter is not None and module.is_wide(name)
    }


def decayed_rates(model: nn.Module, optimizer: Optimizer) -> dict[str, float]:
    """The rates that an optimizer decays: name -> weight decay.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> decayed_rates(model, torch.optim.AdamW(model.parameters(), weight_decay=0.1))
        {'log_sigma2': 0.1}
        >>> decayed_rates(model, torch.optim.AdamW(vbdrop.param_groups(model), weight_decay=0.1))
        {}
    """
    names = rate_parameters(model)
    return {
        names[id(parameter)]: float(group["weight_decay"])
        for group in optimizer.param_groups
        if group.get("weight_decay")
        for parameter in group["params"]
        if id(parameter) in names and parameter.requires_grad
    }


def warn_of_decay(model: nn.Module, optimizer: Optimizer, stacklevel: int = 2) -> None:
    """Warn if an optimizer decays rates of the model."""
    if decayed := decayed_rates(model, optimizer):
        name, decay = next(iter(decayed.items()))
        others = f" and {len(decayed) - 1} more" if len(decayed) > 1 else ""
        warnings.warn(
            f"the optimizer decays dropout rates ({name!r}{others}, weight_decay={decay:g}), which pulls them towards "
            "a value that has nothing to do with the data. Build it from vbdrop.param_groups(model, lr=..., "
            "weight_decay=...), which leaves the rates out of it.",
            stacklevel=stacklevel + 1,
        )


class DecayWatch:
    """Checks the next optimizer that steps with a model's rates, through a hook that is then removed.

    Args:
        model: A converted model.
    """

    def __init__(self, model: nn.Module) -> None:
        found, self._seen = weakref.ref(model), list[bool]()
        self._handle = register_optimizer_step_pre_hook(partial(_see, found, self._seen))

    def end(self, only_if_seen: bool = False) -> None:
        """Stop checking. The hook cannot remove itself, since torch is iterating over the hooks when it is called.

        Args:
            only_if_seen: Continue if no optimizer has stepped with the rates yet.
        """
        if self._seen or not only_if_seen:
            self._handle.remove()


def _see(
    found: "weakref.ref[nn.Module]", seen: list[bool], optimizer: Optimizer, args: tuple[Any, ...], kwargs: object
) -> None:
    """The hook that torch calls before every step of any optimizer."""
    model = None if seen else found()
    if model is not None:
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if not held.isdisjoint(rate_parameters(model)):
            seen.append(True)
            warn_of_decay(model, optimizer, stacklevel=3)
