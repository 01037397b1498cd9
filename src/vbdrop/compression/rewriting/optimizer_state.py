"""The state of an optimizer whose parameters become smaller."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.optim import Optimizer

from vbdrop.compression.planning.plan import Cut
from vbdrop.compression.rewriting.memory_format import ordered_as
from vbdrop.compression.rewriting.slicing import cut


def check_optimizer(optimizer: Optimizer | None, parameters: Mapping[str, nn.Parameter], cuts: dict[str, Cut]) -> None:
    """Check that every state of a parameter that becomes smaller has the parameter's shape, or is one number.

    Raises:
        ValueError: If not, as for a factored optimizer; the message names the parameter.
    """
    for name in cuts:
        if optimizer is None or name not in parameters:
            continue
        for key, value in optimizer.state.get(parameters[name], {}).items():
            if isinstance(value, Tensor) and value.dim() and value.shape != parameters[name].shape:
                raise ValueError(
                    f"the optimizer's state {key!r} of {name!r} has the shape {list(value.shape)} instead of the "
                    f"parameter's, {list(parameters[name].shape)}, so it cannot be made smaller with it."
                )


def cut_state_(optimizer: Optimizer, parameter: nn.Parameter, axes: Cut) -> None:
    """Make the state of a parameter smaller; call this before the parameter itself is cut."""
    state = optimizer.state.get(parameter, {})
    for key, value in state.items():
        if isinstance(value, Tensor) and value.shape == parameter.shape and value.dim():
            state[key] = ordered_as(parameter, cut(value, axes))


def adopt_(optimizer: Optimizer, parameter: nn.Parameter, beside: nn.Parameter) -> None:
    """Make an optimizer train a new parameter with the settings of another one, if it trains that one."""
    for group in optimizer.param_groups:
        if any(other is beside for other in group["params"]):
            group["params"].append(parameter)
