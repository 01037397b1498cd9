"""What PyTorch has no public name for, in one place: what may have to change with a new version of it."""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.conv import _ConvTransposeNd as ConvTransposeNd
from torch.nn.modules.module import _has_any_global_hook

rnn_functions: Any = torch._VF
"""The module in which torch's packing of sequences looks its functions up."""

__all__ = [
    "ConvNd",
    "ConvTransposeNd",
    "autocast_is_on",
    "forward_mode_is_on",
    "has_global_hooks",
    "is_sharded",
    "local_shard",
    "rnn_functions",
    "transforms_are_on",
    "unwrapped",
]


def autocast_is_on() -> bool:
    """Whether autocast is on for any kind of device.

    Example:
        >>> with torch.autocast("cpu", torch.bfloat16):
        ...     autocast_is_on()
        True
    """
    return bool(torch._C._is_any_autocast_enabled())


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def transforms_are_on() -> bool:
    """Whether a transform of `torch.func` (vmap, grad, jvp) or forward-mode differentiation is active.

    Example:
        >>> found = []
        >>> _ = torch.func.vmap(lambda x: found.append(transforms_are_on()) or x)(torch.ones(2))
        >>> found, transforms_are_on()
        ([True], False)
    """
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def forward_mode_is_on() -> bool:
    """Whether forward-mode differentiation (`torch.func.jvp`, dual numbers) is active.

    Example:
        >>> forward_mode_is_on()
        False
    """
    return forward_ad._current_level >= 0


def has_global_hooks() -> bool:
    """Whether a hook is registered that every module calls.

    Example:
        >>> has_global_hooks()
        False
    """
    return bool(_has_any_global_hook())  # type: ignore[no-untyped-call]


def local_shard(tensor: Tensor) -> Tensor:
    """This process's part of a ``DTensor``; any other tensor itself.

    Example:
        >>> tensor = torch.ones(2)
        >>> local_shard(tensor) is tensor
        True
    """
    distributed: Any = sys.modules.get("torch.distributed.tensor")  # no DTensor without it, and its import takes long
    if distributed is None or not isinstance(tensor, distributed.DTensor):
        return tensor
    local: Tensor = tensor.to_local()
    return local


def is_sharded(model: nn.Module) -> bool:
    """Whether parameters of a model are distributed over processes (``DTensor``), as by ``fully_shard``.

    Example:
        >>> is_sharded(nn.Linear(2, 2))
        False
    """
    return any(local_shard(parameter) is not parameter for parameter in model.parameters())


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside `torch.nn.parallel.DistributedDataParallel` and what `torch.compile` returns; others themselves.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> unwrapped(torch.compile(model, backend="eager")) is model, unwrapped(model) is model
        (True, True)
    """
    while True:
        wrapped = isinstance(model, nn.parallel.DistributedDataParallel)
        inner = model.module if wrapped else getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner
