"""The file of a small model: an ordinary safetensors file that rebuilds the model in a fresh instance of its class.

The metadata entry ``vbdrop`` is the header, in JSON: the version of the format, the class, the compact plan, which
names share a tensor, and a checksum of everything else. The tensors are those of the small model, dense or as nonzero
values with their positions, and ``vbdrop:lists``, the indices that the plan keeps. Nothing in a file is executed or
unpickled.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor, fx, nn

from vbdrop.analysis.layer_shapes import owner
from vbdrop.compression.files.attribute_checks import check_names, check_numbers
from vbdrop.compression.files.call_memory import CallMemory
from vbdrop.compression.files.container import checksum, read_container
from vbdrop.compression.files.format import KEY, LISTS, OWN_DTYPES, VERSION, FileFormatError
from vbdrop.compression.files.limits import MOST_LAYERS, Limits
from vbdrop.compression.files.outline import filled, outline
from vbdrop.compression.files.plan_codec import lengthen, shorten
from vbdrop.compression.files.rice_code import Positions, decode_positions, encode_positions
from vbdrop.compression.files.sparse_tensors import from_stored, to_stored
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.planning.replaced_modules import scale_bytes
from vbdrop.compression.rewriting.apply_plan import apply_plan_
from vbdrop.files import write_atomically
from vbdrop.models import CLASSES
from vbdrop.objective import noisy_tensors

DTYPES = {"float32": torch.float32, "float16": torch.float16}

SUFFIX = ".safetensors"

Dtype = Literal["float32", "float16"] | torch.dtype
"""The dtype of stored numbers, float32 or float16: its name, or that of torch."""


def save(
    path: str | Path,
    model: nn.Module,
    plan: Plan | None = None,
    *,
    dtype: Dtype | None = None,
    arguments: dict[str, Any] | None = None,
) -> int:
    """Write a small model.

    Args:
        path: Where to write, with the ending ``.safetensors`` or none; an existing file is replaced only once the new
            one is complete.
        model: The small model.
        plan: The plan that made it; None for a model with the original shape of its class.
        dtype: The dtype in which floating-point numbers are stored; None keeps their own.
        arguments: For a network of `vbdrop.models`, its constructor arguments: such a file loads without a model.

    Returns:
        The size of the file in bytes.

    Raises:
        ValueError: If ``dtype`` is unknown, the path has another ending, or the model's state holds something that is
            not a tensor.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     size = save(f"{folder}/net.safetensors", nn.Linear(4, 2))
        ...     load(f"{folder}/net.safetensors", model=nn.Linear(4, 2))
        Linear(in_features=4, out_features=2, bias=True)
    """
    path, stored_as = _checked_path(path), _checked_dtype(dtype)
    if path.suffix not in ("", SUFFIX):
        raise ValueError(f"`path` must end in {SUFFIX}, the format of the file; got {str(path)!r}.")
    data, lists = shorten(plan or Plan())
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"`model` must hold tensors only; {name!r} is a {type(value).__name__}.")
    listed = {name for name, entry in data.get("buffers", {}).items() if len(entry) == 3}
    kept = {name: value for name, value in state.items() if name not in listed}
    tensors, tied = to_stored(kept, stored_as, dense=_never_sparse(data))
    codes = [encode_positions(each) for each in lists]
    if codes:
        tensors[LISTS] = torch.from_numpy(np.concatenate(codes))
    header: dict[str, Any] = {"version": VERSION, "class": type(model).__name__, "plan": data}
    header["lists"] = [[len(each), len(code)] for each, code in zip(lists, codes, strict=True)]
    header |= {"arguments": arguments} if arguments is not None else {}
    header |= {"tied": tied} if tied else {}
    if (own := _own_dtype(state)) is not None:
        header["dtype"] = own
        uncast = _uncast(model, OWN_DTYPES[own])
        header |= {"uncast": uncast} if uncast else {}
    header["sum"] = checksum(header, tensors)
    text = json.dumps(header, separators=(",", ":"), allow_nan=False)
    content = to_safetensors(tensors, {KEY: text})
    write_atomically(path, content)
    return len(content)


def built_with(model: nn.Module) -> dict[str, Any] | None:
    """The constructor arguments of a network of `vbdrop.models`, for `save`; None for any other model.

    Example:
        >>> from vbdrop.models import LeNet5
        >>> built_with(LeNet5(classes=3)), built_with(nn.Linear(2, 2))
        ({'classes': 3}, None)
    """
    arguments: dict[str, Any] | None = getattr(model, "arguments", None)
    return arguments if CLASSES.get(type(model).__name__) is type(model) else None


def load(path: str | Path, model: nn.Module | None = None, *, max_call_bytes: int | None = None) -> nn.Module:
    """Rebuild a small model from its file.

    No code in a file is executed, and an untrusted file can do no harm: a forward in a file consists of operations from
    a closed table, and the memory for reading it stays below 50 MB plus ten times the file size plus that of ``model``.

    Args:
        path: A file that `save` wrote.
        model: A fresh instance of the class that was compressed, built with the same arguments and not converted; it
            is not changed. Its dtype may differ, unless the compressed model had several. A network of `vbdrop.models`
            needs none.
        max_call_bytes: For a file with its own forward, the memory that a call may use in addition to an allowance for
            its inputs (2,048 bytes per byte of floating-point numbers, 64 KiB per integer). None means 16 MiB plus
            four times the file size plus the bytes of ``model``. A call that needs more raises a `ValueError` before
            anything is computed.

    Returns:
        The small model, in eval mode.

    Raises:
        FileFormatError: If the file is damaged, has a later version or belongs to another model, or if it asks for more
            memory than a file of its size may need. Nothing is loaded then.

    Example:
        >>> import tempfile
        >>> from vbdrop.models import LeNet5
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     size = save(f"{folder}/net.safetensors", LeNet5(), arguments={"classes": 10})
        ...     type(load(f"{folder}/net.safetensors"))
        <class 'vbdrop.models.lenet.LeNet5'>
    """
    if max_call_bytes is not None and (type(max_call_bytes) is not int or max_call_bytes < 0):
        raise ValueError(f"`max_call_bytes` must be a number of bytes, an int >= 0, or None; got {max_call_bytes!r}.")
    path = _checked_path(path)
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module or None; got {type(model).__name__}.")
    header, tensors = read_container(path)
    fresh, devices = (None, {}) if model is None else outline(model)
    limits = Limits(path.stat().st_size, _bytes(model.state_dict()) if model is not None else 0)
    try:
        small = _loaded(header, tensors, fresh, devices, limits)
    except FileFormatError as error:
        if model is None or next(noisy_tensors(model), None) is None:
            raise
        raise FileFormatError(f"{error} `model` is converted; pass a fresh one, before vbdrop.convert_.") from error
    except Exception as error:  # a file may hold anything, so any error is the file's fault
        raise FileFormatError(f"the file cannot be read: {type(error).__name__}: {error}") from error
    if isinstance(small, fx.GraphModule):
        CallMemory(limits.call if max_call_bytes is None else max_call_bytes).attach(small)
    return small.eval()


def _checked_path(path: object) -> Path:
    if not isinstance(path, str | Path):
        raise TypeError(f"`path` must be the path of a file, a str or a Path; got {path!r}.")
    return Path(path)


def _checked_dtype(dtype: object) -> torch.dtype | None:
    found = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if dtype is None or (isinstance(found, torch.dtype) and found in DTYPES.values()):
        return None if dtype is None else found  # type: ignore[return-value]
    raise ValueError(f"`dtype` must be None or one of {', '.join(DTYPES)}; got {dtype!r}.")


def _loaded(
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    fresh: nn.Module | None,
    devices: dict[str, torch.device],
    limits: Limits,
) -> nn.Module:
    """The small model.

    The plan is applied to an outline, a model whose tensors have shapes but no values, so that no memory is allocated
    before all sizes are known to be within the limits.
    """
    if fresh is None:
        fresh = _built(header)
    elif type(fresh).__name__ != header["class"]:
        raise FileFormatError(f"the file is for a model of class {header['class']}; got {type(fresh).__name__}.")
    if header["dtype"] is not None:
        uncast = {name: fresh.get_buffer(name) for name in header["uncast"]}
        fresh.to(OWN_DTYPES[header["dtype"]])
        for name, buffer in uncast.items():
            setattr(fresh.get_submodule(owner(name)), name.rpartition(".")[2], buffer)
    plan = lengthen(header["plan"], _lists(header, tensors, limits), tensors, limits)
    limits.check_dense(scale_bytes(plan))
    try:
        check_names(plan, fresh)
        small = apply_plan_(plan, fresh)
        check_numbers(small)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise FileFormatError(f"the file does not fit the model {header['class']}: {error}") from error
    held = plan.program.buffers.keys() - tensors.keys() if plan.program is not None else set()
    wanted = {name: value for name, value in small.state_dict().items() if name not in held}
    limits.check_dense(_bytes(wanted))
    state = from_stored({name: value for name, value in tensors.items() if name != LISTS}, header["tied"], wanted)
    _check_tied(small, state)
    return filled(small, state, devices)


def _check_tied(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Refuse different values for names that are one tensor in the model, which can hold only one of them."""
    first: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        other = first.setdefault(id(tensor), name)
        if other == name or name not in state or other not in state:
            continue
        if state[name] is not state[other] and not torch.equal(state[name], state[other]):
            raise FileFormatError(
                f"{other!r} and {name!r} are one tensor in `model`, and the file has different values for them: untie "
                "them in a fresh model, as they were in the one that was saved."
            )


def _bytes(state: Mapping[str, Any]) -> int:
    return sum(value.numel() * value.element_size() for value in state.values() if isinstance(value, Tensor))


def _own_dtype(state: Mapping[str, Tensor]) -> str | None:
    """The name of the dtype that all floating-point tensors of a model have, if it is not float32."""
    found = {value.dtype for value in state.values() if value.is_floating_point()}
    return next((name for name, dtype in OWN_DTYPES.items() if found == {dtype}), None)


def _uncast(model: nn.Module, dtype: torch.dtype) -> list[str]:
    """The non-persistent floating-point buffers whose dtype differs from that of the stored tensors."""
    stored = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name not in stored}
    return [name for name, buffer in buffers.items() if buffer.is_floating_point() and buffer.dtype != dtype]


def _never_sparse(data: dict[str, Any]) -> set[str]:
    """New biases and buffers of the program, whose sizes only the file knows."""
    return {*data.get("new", []), *data.get("buffers", {})}


def _lists(header: dict[str, Any], tensors: dict[str, Tensor], limits: Limits) -> list[Positions]:
    lists, offset = [], 0
    data = tensors.get(LISTS, torch.zeros(0, dtype=torch.uint8))
    if data.dtype != torch.uint8 or data.dim() != 1:
        raise FileFormatError(f"{LISTS!r} must be bytes; got {data.dtype}.")
    limits.check_indices(sum(count for count, _ in header["lists"]))
    for count, size in header["lists"]:
        lists.append(decode_positions(data[offset : offset + size].numpy(), count, 2**31))
        offset += size
    if offset != len(data):
        raise FileFormatError(f"the lists of indices must have {offset} bytes; got {len(data)}.")
    return lists


def _built(header: dict[str, Any]) -> nn.Module:
    """The outline of the `vbdrop.models` network that the file is for, if it is one and its size is plausible."""
    name, arguments = header["class"], header["arguments"]
    if name not in CLASSES or arguments is None:
        raise FileFormatError(f"the file is for a model of class {name}; pass a fresh one: load(path, model={name}()).")
    try:
        for value in arguments.values():
            if isinstance(value, list | str) and len(value) > MOST_LAYERS:
                raise ValueError(f"it would have {len(value):,} layers")
        with torch.device("meta"):
            return CLASSES[name](**arguments)
    except Exception as error:  # a class may raise anything for invalid arguments
        said = f"{arguments}"[:200]
        raise FileFormatError(f"a {name} cannot be built with {said}: {error}") from error
