"""A model without the values of its tensors, and back: a plan is tried on shapes before memory is allocated."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import detached_activations


def outline(model: nn.Module) -> tuple[nn.Module, dict[str, torch.device]]:
    """A copy of a model whose stored tensors have shapes but no values.

    Tensors that a ``state_dict`` does not hold, such as non-persistent buffers, are copied with their values.

    Returns:
        The copy, and the devices of the tensors by name.

    Example:
        >>> copied, _ = outline(nn.Linear(1000, 1000))
        >>> copied.weight.device
        device(type='meta')
    """
    stored = model.state_dict(keep_vars=True)
    memo = detached_activations(model)
    devices = {}
    for name, tensor in stored.items():
        if isinstance(tensor, Tensor):
            devices[name] = tensor.device
            memo[id(tensor)] = _like(tensor, torch.empty_like(tensor, device="meta"))
    return copy.deepcopy(model, memo), devices


def filled(model: nn.Module, state: Mapping[str, Tensor], devices: Mapping[str, torch.device]) -> nn.Module:
    """A copy of an outline with values.

    Args:
        model: The outline; it must not be used afterwards.
        state: The values by name, of the same shapes; tensors that are missing here keep their own values.
        devices: The device of each tensor, by name; others go to the first of these devices, or to the CPU if empty.

    Example:
        >>> empty, devices = outline(nn.Linear(2, 1, bias=False))
        >>> filled(empty, {"weight": torch.tensor([[1.0, 2.0]])}, devices).weight.tolist()
        [[1.0, 2.0]]
    """
    named = *model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)
    default = next(iter(devices.values()), torch.device("cpu"))
    memo: dict[int, object] = {}
    used = set[int]()
    for name, tensor in named:
        if id(tensor) in memo:  # one tensor with several names
            continue
        value = state.get(name, tensor).detach()
        if value.stride() != tensor.stride():
            value = torch.empty_like(tensor, device=value.device).copy_(value)
        if value.data_ptr() in used:
            value = value.clone()
        used.add(value.data_ptr())
        memo[id(tensor)] = _like(tensor, value.to(devices.get(name, default)))
    return copy.deepcopy(model, memo)


def allocated(model: nn.Module, devices: Mapping[str, torch.device]) -> nn.Module:
    """A copy of an outline whose tensors have memory, but arbitrary values: it stands in for a fresh model.

    Args:
        model: The outline.
        devices: The device of each tensor, by name.

    Example:
        >>> allocated(*outline(nn.Linear(2, 1))).weight.device
        device(type='cpu')
    """
    stored = {name: value for name, value in model.state_dict().items() if name in devices}
    return filled(
        model, {name: torch.empty_like(value, device=devices[name]) for name, value in stored.items()}, devices
    )


def _like(tensor: Tensor, value: Tensor) -> Tensor:
    """A tensor with other values; a parameter if the original is one."""
    return (
        nn.Parameter(value, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value.detach()
    )
