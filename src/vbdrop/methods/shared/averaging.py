"""The average of a network over the last part of its run: everything that it learns except the variances.

The running statistics of normalisation layers are those of the last step.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from vbdrop.layers import Variational

_SUFFIX = "_average"


def _averaged(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Every parameter that is averaged, with its module and its name there."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and name != "log_sigma2":
                yield module, name, parameter


def add_averages_(model: nn.Module) -> None:
    """Give every mean and bias of a converted model a buffer for its average.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> add_averages_(model)
        >>> list(model.state_dict())
        ['weight', 'bias', 'weight_average', 'bias_average']
    """
    for module, name, parameter in list(_averaged(model)):
        module.register_buffer(name + _SUFFIX, torch.zeros_like(parameter))


@torch.no_grad()
def average_(model: nn.Module, count: int) -> None:
    """Add the current values to the averages, as the last of ``count`` equally weighted ones.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> add_averages_(model)
        >>> for count, value in enumerate((1.0, 2.0, 6.0), start=1):
        ...     _ = nn.init.constant_(model.weight, value)
        ...     average_(model, count)
        >>> model.weight_average.item()
        3.0
    """
    for module, name, parameter in _averaged(model):
        module.get_buffer(name + _SUFFIX).lerp_(parameter, 1 / count)


@torch.no_grad()
def use_averages_(model: nn.Module) -> None:
    """Replace all values by their averages, except the means of dead weights.

    Whether a survivor is alive then depends on its averaged mean.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> add_averages_(model)
        >>> use_averages_(model)
        >>> model.weight.item()
        0.0
    """
    for module, name, parameter in _averaged(model):
        average = module.get_buffer(name + _SUFFIX)
        dead = _dead(module, name)
        parameter.copy_(average if dead is None else torch.where(dead, parameter, average))


def remove_averages_(model: nn.Module) -> nn.Module:
    """Remove the buffers.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> add_averages_(model)
        >>> list(remove_averages_(model).state_dict())
        ['weight', 'bias']
    """
    for module, name, _ in list(_averaged(model)):
        delattr(module, name + _SUFFIX)
    return model


def _dead(module: nn.Module, name: str) -> Tensor | None:
    """Which weights of this parameter are dead; None for one without noise."""
    entries = module.variational() if isinstance(module, Variational) else ()
    return next((entry.dead() for entry in entries if entry.name == name), None)
