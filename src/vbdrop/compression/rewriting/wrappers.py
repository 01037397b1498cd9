"""Models in several processes: wrappers that must no longer be used once the model has become smaller."""

import gc
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vbdrop._torch_compat import is_sharded


def check_unwrapped(model: nn.Module) -> None:
    """Refuse a model whose shapes cannot be changed from outside.

    Raises:
        ValueError: If it is a `DistributedDataParallel`, or distributed over processes by ``fully_shard``.

    Example:
        >>> check_unwrapped(nn.Linear(2, 2))
    """
    if isinstance(model, DistributedDataParallel):
        raise ValueError(
            "`target` must be the model itself; got it inside DistributedDataParallel, which reduces gradients of the "
            "shapes that it was built with. Apply the plan to `wrapped.module` on every rank, and wrap it again."
        )
    if is_sharded(model):
        raise ValueError(
            "`target` must have whole parameters; those of this one are distributed over processes, as by fully_shard, "
            "and cannot become smaller in training. Gather a full state dict at the end, and compress that model."
        )


def retire_wrappers_(model: nn.Module) -> None:
    """Make every `DistributedDataParallel` around a model raise an error at its next forward.

    It reduces gradients with the shapes from when it was built: further steps would silently leave the ranks with
    different weights.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    inside = {id(module) for module in model.modules()}
    for found in gc.get_objects():
        if issubclass(type(found), DistributedDataParallel) and id(found._modules.get("module")) in inside:
            found.register_forward_pre_hook(_refuse)


def _refuse(wrapper: nn.Module, args: Any) -> None:  # noqa: ANN401 -- whatever the forward takes
    raise RuntimeError(
        "this DistributedDataParallel was made before its model became smaller, and reduces gradients of the old "
        "shapes. Wrap the model again: DistributedDataParallel(wrapped.module)."
    )
