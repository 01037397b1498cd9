"""The tensors of a model as a file holds them: dense, or as nonzero values with their positions.

A sparse tensor ``fc.weight`` becomes two tensors in the file: ``fc.weight``, its values in order, and ``fc.weight:at``,
their positions (see `vbdrop.compression.files.rice_code`). A tensor with several names is stored once.
"""

from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor

from vbdrop.compression.files.format import FileFormatError
from vbdrop.compression.files.rice_code import encode_positions, position_blocks

POSITIONS = ":at"
"""The suffix of the name of a sparse tensor's positions."""

ENTRY_BYTES = 80
"""The approximate bytes that one more tensor takes in the header of the file."""


def to_stored(
    state: Mapping[str, Tensor], dtype: torch.dtype | None = None, dense: Collection[str] = ()
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Choose for each tensor the form that takes fewer bytes.

    Args:
        state: The tensors by name.
        dtype: The dtype for floating-point numbers; a tensor with values outside its range keeps its own. With None,
            all tensors keep their own.
        dense: The names of tensors that must not become sparse.

    Returns:
        The tensors of the file, and the names that share the tensor of another name.

    Example:
        >>> tensors, _ = to_stored({"weight": torch.eye(100)})
        >>> {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        {'weight': (100,), 'weight:at': (101,)}
    """
    tensors: dict[str, Tensor] = {}
    first: dict[tuple[object, ...], str] = {}
    tied: dict[str, str] = {}
    for name, tensor in state.items():
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and place in first:
            tied[name] = first[place]
            continue
        first[place] = name
        value = tensor.detach().cpu().contiguous()
        if dtype is not None and value.is_floating_point() and bool((value.abs() <= torch.finfo(dtype).max).all()):
            value = value.to(dtype)
        parts = {name: value} if name in dense or not value.is_floating_point() else _smaller(name, value)
        if clash := parts.keys() & tensors.keys():
            raise ValueError(f"the model must not have two tensors named {clash.pop()!r} in a file.")
        tensors |= parts
    return tensors, tied


def from_stored(
    tensors: Mapping[str, Tensor], tied: Mapping[str, str], like: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors of a model, from those of a file.

    Args:
        tensors: The tensors of the file.
        tied: The names that share the tensor of another name.
        like: The tensors of the model, which give the shapes and dtypes.

    Raises:
        FileFormatError: If a tensor is missing or unexpected, or its shape or dtype does not match the model's.
    """
    state = {name: _restored(name, tensors, tied, model_tensor) for name, model_tensor in like.items()}
    used = {tied.get(name, name) for name in like}
    known = used | {f"{name}{POSITIONS}" for name in used}
    for name in sorted((tensors.keys() - known) | (tied.keys() - like.keys())):
        raise FileFormatError(f"the file has a tensor {name!r}, which the model does not have.")
    return state


def _smaller(name: str, value: Tensor) -> dict[str, Tensor]:
    flat = value.flatten()
    where = flat.nonzero().flatten()
    item = value.element_size()
    if len(where) * item + ENTRY_BYTES >= value.numel() * item:
        return {name: value}
    positions = torch.from_numpy(encode_positions(where.numpy()))
    if len(where) * item + len(positions) + ENTRY_BYTES >= value.numel() * item:
        return {name: value}
    return {name: flat[where], f"{name}{POSITIONS}": positions}


def _restored(name: str, tensors: Mapping[str, Tensor], tied: Mapping[str, str], like: Tensor) -> Tensor:
    source = tied.get(name, name)
    if source not in tensors:
        raise FileFormatError(f"the file has no tensor {source!r}, which the model needs.")
    value, positions = tensors[source], tensors.get(f"{source}{POSITIONS}")
    if value.dtype != like.dtype and not (value.is_floating_point() and like.is_floating_point()):
        raise FileFormatError(f"{source!r} is {value.dtype} in the file, {like.dtype} in the model.")
    if positions is None:
        if value.shape != like.shape:
            raise FileFormatError(f"{source!r} is {list(value.shape)} in the file, {list(like.shape)} in the model.")
        return value.to(like.dtype)
    if value.dim() != 1 or positions.dim() != 1 or positions.dtype != torch.uint8:
        raise FileFormatError(f"{source!r} must be stored as a list of values and one of bytes.")
    full, done = torch.zeros(like.numel(), dtype=like.dtype), 0
    for where in position_blocks(np.asarray(positions), len(value), like.numel()):
        full[torch.from_numpy(where)] = value[done : done + len(where)].to(like.dtype)
        done += len(where)
    return full.reshape(like.shape)
