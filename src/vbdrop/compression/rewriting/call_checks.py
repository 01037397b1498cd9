"""The allowed arguments of a program's calls: their kinds must match the schema, and numbers must be in range."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from vbdrop._torch_compat import schema_of
from vbdrop.compression.rewriting.operations import Operation, find_operation, overload_of

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""The dtypes that a tensor of a program can have."""

DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:\d{1,3})?")
EQUATION = re.compile(r"[a-zA-Z., ]{1,200}(->[a-zA-Z. ]{0,100})?")

LARGEST_CONSTANT = 2**22
"""The most elements of a tensor that a program creates itself: 16 MiB of float32."""

MOST_LISTED = 4096
"""The longest list among the arguments."""

INT64 = (-(2**63), 2**63 - 1)
SMALL = (-(2**20), 2**20)
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("dim", "dims", "dim0", "dim1", "axis", "axis0", "axis1", "start_dim", "end_dim"), (-64, 64)),
    **dict.fromkeys(("kernel_size", "stride", "padding", "dilation", "output_padding", "pad", "repeats"), SMALL),
    **dict.fromkeys(("output_size", "groups", "num_groups", "k", "upscale_factor", "downscale_factor"), SMALL),
    **dict.fromkeys(("n", "m", "steps", "chunks", "sections", "split_size", "diagonal", "offset"), SMALL),
    **dict.fromkeys(("interpolation_mode", "padding_mode"), (0, 2)),
    **dict.fromkeys(("scale_factors", "scales", "scales_d", "scales_h", "scales_w"), (2**-12, 2**12)),
    "num_layers": (1, 1024),
    "num_classes": (1, 2**20),
    "correction": (-1024, 1024),
}
"""The name of an argument -> the range of its numbers; all others may be any 64-bit number."""

SPELLED_OUT = ("interpolation_mode", "padding_mode", "num_layers")
"""Numbers that a program must give literally and may not compute, since some kernels do not check them."""

OFF = ("train", "training", "pin_memory", "non_blocking", "sparse", "scale_grad_by_freq")
"""Flags that a program in eval mode never sets, unless the operation requires it."""

TENSOR, NUMBER, TENSORS, ANY = "tensor", "number", "tensors", "any"
"""The kinds of a node's value; a model input or the result of a module can be any structure of tensors."""


class CallError(ValueError):
    """Raised for a call that a program cannot make; the message says what is wrong."""


def check_call(target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Mapping[fx.Node, str]) -> str:
    """Check a call of a program.

    Args:
        target: The operation, as a program writes it.
        args: Its arguments by position, with nodes for the values of other calls.
        kwargs: Its arguments by name.
        kinds: The kinds of the values of the preceding nodes.

    Returns:
        The kind of the call's value.

    Raises:
        CallError: If the operation is not in the table, or cannot have such arguments.

    Example:
        >>> x = fx.Graph().placeholder("x")
        >>> check_call("aten.mul.Tensor", (x, 2.0), {}, {x: ANY})
        'tensor'
        >>> check_call("aten.save.default", (x,), {}, {x: ANY})
        Traceback (most recent call last):
        ...
        vbdrop.compression.rewriting.call_checks.CallError: the operation aten.save.default is not one ...
    """
    operation = find_operation(target)
    if operation is None:
        raise CallError(f"the operation {target} is not one that a program can call")
    if target.startswith("operator."):
        return _check_arithmetic(target, operation, args, kwargs, kinds)
    schema = schema_of(overload_of(target))
    given = _bound(target, schema, args, kwargs)
    for argument in schema.arguments:
        if argument.name in given:
            _check_argument(target, operation, argument, given[argument.name], kinds)
    if operation.sizes is not None:
        _check_constant(target, given[operation.sizes])
    elif target.startswith(("aten.arange.", "aten.linspace.", "aten.eye.")):
        _check_range(target, given)
    returned = [str(value.real_type) for value in schema.returns]
    if len(returned) != 1 or returned[0].startswith("List"):
        return TENSORS
    return TENSOR if returned[0] == "Tensor" else NUMBER


def _check_arithmetic(
    target: str, operation: Operation, args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Mapping[fx.Node, str]
) -> str:
    if kwargs or len(args) != (operation.numbers or 2):
        raise CallError(f"{target} must have {operation.numbers or 2} arguments; got {len(args) + len(kwargs)}")
    if target == "operator.eq" and args[1] is None and isinstance(args[0], fx.Node) and kinds[args[0]] == ANY:
        return NUMBER  # whether an argument was left out
    if operation.numbers:
        for value in args:
            if not _is_number(value, kinds):
                raise CallError(f"{target} must have numbers; got {_said(value)}")
        return NUMBER
    source, key = args
    if not isinstance(source, fx.Node) or kinds[source] not in (TENSORS, ANY):
        raise CallError(f"{target} must have several tensors to choose from; got {_said(source)}")
    if not _is_int(key) and not (isinstance(key, str) and len(key) <= MOST_LISTED):
        raise CallError(f"{target} must have a position or a name; got {_said(key)}")
    return TENSOR if kinds[source] == TENSORS else ANY


def _bound(target: str, schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """The arguments by name."""
    names = [argument.name for argument in schema.arguments]
    by_position = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    if len(args) > len(by_position) or not kwargs.keys() <= set(names[len(args) :]):
        raise CallError(f"{target} cannot have {len(args)} arguments and {sorted(kwargs)}")
    given = {**dict(zip(by_position, args, strict=False)), **kwargs}
    for argument in schema.arguments:
        if argument.name not in given and not argument.has_default_value():
            raise CallError(f"{target} must have its argument `{argument.name}`")
    return given


def _check_argument(
    target: str,
    operation: Operation,
    argument: Any,  # noqa: ANN401 -- of a schema, whose class torch does not export
    value: Any,  # noqa: ANN401
    kinds: Mapping[fx.Node, str],
) -> None:
    kind, name = str(argument.real_type), argument.name
    while kind.startswith("Optional["):
        if value is None:
            return
        kind = kind[len("Optional[") : -1]
    values = [value]
    if kind.startswith("List["):
        kind = kind[len("List[") : -1]
        # torch accepts a single number in place of a list of equal ones, and a tuple in place of a list
        values = list(value) if isinstance(value, list | tuple) else [value]
        if isinstance(value, fx.Node) and kind == "Tensor" and kinds[value] == TENSORS:
            return
        if len(values) > MOST_LISTED:
            raise CallError(f"`{name}` of {target} must have at most {MOST_LISTED} entries; got {len(values)}")
    words = operation.words.get(name)
    for one in values:
        fits = one in words if kind == "str" and words else _KINDS.get(kind, _never)(one, kinds)
        low, high = RANGES.get(name, INT64)
        if fits and isinstance(one, int | float) and math.isfinite(one) and kind != "bool":
            fits = low <= one <= high or (isinstance(one, float) and name not in RANGES)
        fits = fits and not (name in SPELLED_OUT and isinstance(one, fx.Node))
        if not fits or (name in OFF and one is not (name in operation.on)):
            wanted = f"one of {', '.join(words)}" if words else kind.replace("Optional[", "").rstrip("]")
            raise CallError(f"`{name}` of {target} must be {wanted}, and in range; got {_said(one)}")


def _check_constant(target: str, sizes: Any) -> None:  # noqa: ANN401 -- a list of numbers and nodes
    known = [size for size in ([sizes] if _is_int(sizes) else sizes) if isinstance(size, int)]
    if math.prod(max(size, 1) for size in known) > LARGEST_CONSTANT:
        raise CallError(f"{target} must make at most {LARGEST_CONSTANT} elements; got the sizes {known}")


def _check_range(target: str, given: Mapping[str, Any]) -> None:
    if target.startswith("aten.arange."):
        known = [given.get("start", 0), given["end"], given.get("step", 1)]
        if not all(isinstance(number, int | float) and math.isfinite(number) for number in known):
            return  # its size is checked when it is called
        count = abs((known[1] - known[0]) / known[2]) if known[2] else math.inf
    else:
        count = math.prod(n for n in (given.get("n"), given.get("m", given.get("n"))) if isinstance(n, int))
        count = max(count, given["steps"] if isinstance(given.get("steps"), int) else 0)
    if count > LARGEST_CONSTANT:
        raise CallError(f"{target} must make at most {LARGEST_CONSTANT} elements; got {count:.3g}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object, kinds: Mapping[fx.Node, str]) -> bool:
    if isinstance(value, fx.Node):
        return kinds[value] == NUMBER
    return (_is_int(value) and INT64[0] <= value <= INT64[1]) or isinstance(value, float)  # type: ignore[operator]


def _is_tensor(value: object, kinds: Mapping[fx.Node, str]) -> bool:
    return isinstance(value, fx.Node) and kinds[value] in (TENSOR, ANY)


def _is_scalar(value: object, kinds: Mapping[fx.Node, str]) -> bool:
    return isinstance(value, bool) or _is_number(value, kinds)


def _is_tensor_or_scalar(value: object, kinds: Mapping[fx.Node, str]) -> bool:
    return _is_tensor(value, kinds) or _is_scalar(value, kinds)  # torch accepts a number where it expects a tensor


def _never(value: object, kinds: Mapping[fx.Node, str]) -> bool:
    return False


_KINDS: dict[str, Callable[[Any, Mapping[fx.Node, str]], bool]] = {
    "Tensor": _is_tensor_or_scalar,
    "Optional[Tensor]": lambda value, kinds: value is None or _is_tensor(value, kinds),
    "int": lambda value, kinds: _is_number(value, kinds) and not isinstance(value, float),
    "float": _is_number,
    "number": _is_scalar,
    "bool": lambda value, kinds: isinstance(value, bool),
    "str": lambda value, kinds: isinstance(value, str) and EQUATION.fullmatch(value) is not None,
    "ScalarType": lambda value, kinds: isinstance(value, torch.dtype) and str(value)[len("torch.") :] in DTYPES,
    "Layout": lambda value, kinds: value is torch.strided,
    "Device": lambda value, kinds: isinstance(value, torch.device) and DEVICE.fullmatch(str(value)) is not None,
    "MemoryFormat": lambda value, kinds: isinstance(value, torch.memory_format),
}
"""The type of an argument in a schema -> whether a value has it."""


def _said(value: object) -> str:
    """A value, shortened for a message."""
    if isinstance(value, fx.Node):
        return f"the value of {value.name!r}"
    text = repr(value) if isinstance(value, bool | int | float | str | torch.dtype) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}..."
