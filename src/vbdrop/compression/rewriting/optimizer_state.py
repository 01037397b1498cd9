"""The state of optimizers whose parameters become smaller."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from vbdrop.compression.planning.plan import Cut
from vbdrop.compression.rewriting.memory_format import ordered_as
from vbdrop.compression.rewriting.slicing import cut


def listed(optimizer: object) -> list[Optimizer]:
    """The optimizers in an argument that may be None, one optimizer or a sequence of them, each of them once.

    Raises:
        TypeError: If it is something else.
    """
    given: list[Any] = [] if optimizer is None else list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
    for one in given:
        if not (hasattr(one, "state") and hasattr(one, "param_groups")):  # a wrapper may have another class
            raise TypeError(
                "`optimizer` must be a torch.optim.Optimizer, a sequence of them or None; "
                f"got {'one with a ' if one is not optimizer else 'a '}{type(one).__name__}."
            )
    return list({id(one): one for one in given}.values())


def check_optimizers(
    optimizers: Sequence[Optimizer], parameters: Mapping[str, nn.Parameter], cuts: dict[str, Cut]
) -> None:
    """Check that every state of a parameter that becomes smaller has the parameter's shape, or is one number.

    Raises:
        ValueError: If not, as for a factored optimizer; the message names the parameter.
    """
    for name in [name for name in cuts if name in parameters]:
        shape = parameters[name].shape
        for key, value in [pair for one in optimizers for pair in one.state.get(parameters[name], {}).items()]:
            if isinstance(value, Tensor) and value.dim() and value.shape != shape:
                raise ValueError(
                    f"the optimizer's state {key!r} of {name!r} has the shape {list(value.shape)} instead of the "
                    f"parameter's, {list(shape)}, so it cannot be made smaller with it."
                )


def cut_states_(optimizers: Sequence[Optimizer], parameter: nn.Parameter, axes: Cut) -> None:
    """Make the states of a parameter smaller; call this before the parameter itself is cut."""
    for state in [one.state.get(parameter, {}) for one in optimizers]:
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.dim():
                state[key] = ordered_as(parameter, cut(value, axes))


def adopt_(optimizer: Optimizer, parameter: nn.Parameter, beside: nn.Parameter) -> None:
    """Make an optimizer train a new parameter with the settings of another one, if it trains that one."""
    for group in optimizer.param_groups:
        if any(other is beside for other in group["params"]):
            group["params"].append(parameter)
