"""A graph as data, and back: the forward of a small model that cannot use the forward of its class.

A node is ``{"name", "op", "target", "args", "kwargs"}`` as in `torch.fx`. In the arguments, a reference to another
node is ``{"node": name}``; tuples, dicts, dtypes and the like are also objects with one key. A program can call only
the functions in a closed table, `vbdrop.compression.rewriting.operations`, with checked arguments. It can also call the
modules of its model, each with one value, and read its tensors, but nothing else: through any other attribute a file
could reach all of Python.
"""

import keyword
import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from vbdrop._torch_compat import OpOverload
from vbdrop.compression.rewriting.call_checks import ANY, DTYPES, TENSOR, CallError, check_call
from vbdrop.compression.rewriting.operations import ARITHMETIC_ON_SIZES, function_of

_TORCH_VALUES: dict[str, type] = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}

_KINDS = {"call_module": "module", "get_attr": "tensor"}

OPERATIONS = ("placeholder", "get_attr", "call_function", "call_module", "output")

DEEPEST = 16
"""The deepest nesting of inputs, arguments and outputs."""


class ProgramError(ValueError):
    """Raised for a graph that cannot be written as data, or data that is not a graph."""


def encode(graph: fx.Graph) -> list[dict[str, Any]]:
    """Write a graph as data.

    Raises:
        ProgramError: If it contains something that cannot be written as data, or an operation that a program cannot
            call; the message names it.

    Example:
        >>> graph = fx.Graph()
        >>> _ = graph.output(graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),)))
        >>> encode(graph)[1]["target"], encode(graph)[1]["args"]
        ('aten.relu.default', [{'node': 'x'}])
    """
    nodes, kinds = [], dict[fx.Node, str]()
    for node in graph.nodes:
        target = _target_name(node.target)
        data = {
            "name": node.name,
            "op": node.op,
            "target": target,
            "args": [_encoded(argument) for argument in node.args],
            "kwargs": {name: _encoded(argument) for name, argument in node.kwargs.items()},
        }
        kinds[node] = _checked_kind(node.op, target, node.args, node.kwargs, kinds)
        nodes.append(data)
    return nodes


def build(nodes: list[dict[str, Any]], root: nn.Module, buffers: dict[str, dict[str, Any]]) -> fx.GraphModule:
    """Build a module from a program and the modules that it calls.

    Args:
        nodes: The result of `encode`.
        root: The model whose modules and parameters the program uses.
        buffers: The additional tensors that the program needs.

    Raises:
        ProgramError: If the data is not a program, or names something that ``root`` does not have.
    """
    devices = (parameter.device for parameter in root.parameters() if not parameter.is_meta)
    device = next(devices, torch.device("cpu"))  # the tensors of a program have values, unlike those of an outline
    for name, entry in buffers.items():
        if "." in name or hasattr(root, name):
            raise ProgramError(f"the program cannot add a buffer named {name!r}.")
        root.register_buffer(name, decoded_tensor(entry).to(device))
    graph = fx.Graph()
    values: dict[str, fx.Node] = {}
    kinds: dict[fx.Node, str] = {}
    targets = {"call_module": _module_names(root), "get_attr": _tensor_names(root)}
    try:
        for node in nodes:
            _add_node(graph, node, values, kinds, targets)
        graph.lint()
        module = fx.GraphModule(root, graph, class_name=type(root).__name__)
    except ProgramError:
        raise
    except Exception as error:  # torch.fx asserts and raises many things on a bad graph
        raise ProgramError(f"the program does not fit the model: {error}") from error
    return module.train(root.training)


def encoded_tensor(tensor: Tensor) -> dict[str, Any]:
    """A small tensor as data."""
    return {
        "dtype": _name_of(tensor.dtype),
        "shape": list(tensor.shape),
        "data": [_encoded(number) for number in tensor.flatten().tolist()],
    }


def decoded_tensor(entry: dict[str, Any]) -> Tensor:
    """A tensor from the result of `encoded_tensor`, or from a similar entry with a tensor as its ``data``."""
    data, shape = entry.get("data"), entry.get("shape")
    if isinstance(data, Tensor):
        if list(data.shape) != shape:
            raise ProgramError(f"a buffer of the program has the shape {list(data.shape)} instead of {shape}.")
        dtype = _torch_value("dtype", entry.get("dtype"))
        if data.dtype != dtype and not (data.is_floating_point() and dtype.is_floating_point):  # stored as float16
            raise ProgramError(f"a buffer of the program is {data.dtype} instead of {dtype}.")
        return data.to(dtype)
    if not isinstance(data, list) or not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise ProgramError("a buffer of the program must have `data`, `shape` and `dtype`.")
    if len(data) != math.prod(shape):
        raise ProgramError(f"a buffer of the program has {len(data)} values for the shape {shape}.")
    try:
        numbers = [_decoded(number, {}) for number in data]
        return torch.tensor(numbers, dtype=_torch_value("dtype", entry.get("dtype"))).reshape(shape)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ProgramError(f"a buffer of the program cannot be read: {error}") from error


def _target_name(target: Any) -> str:  # noqa: ANN401 -- what a node calls
    if isinstance(target, str):
        return target
    if isinstance(target, OpOverload) and target.namespace == "aten":
        return str(target)
    for name, operation in ARITHMETIC_ON_SIZES.items():
        if target in (getattr(operator, name), operation.call):
            return f"operator.{name}"
    raise ProgramError(f"the operation {target} is not one that a program can call")


def _checked_kind(
    op: str, target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Mapping[fx.Node, str]
) -> str:
    """Check the arguments of a node and return the kind of its value."""
    if op == "call_function":
        try:
            return check_call(target, args, kwargs, kinds)
        except CallError as error:
            raise ProgramError(str(error)) from error
    if op == "call_module" and (kwargs or len(args) != 1 or not isinstance(args[0], fx.Node)):
        raise ProgramError(f"the program must call the module {target!r} with the value of one node.")
    scalar = not args or args[0] is None or isinstance(args[0], bool | int | float | str)
    if op == "placeholder" and (kwargs or len(args) > 1 or not scalar):
        raise ProgramError(f"the input {target!r} of the program must have no default, or a number or a word.")
    if op == "get_attr" and (args or kwargs):
        raise ProgramError(f"the program must read the tensor {target!r} without arguments.")
    if op == "output" and (kwargs or len(args) != 1):
        raise ProgramError(f"the program must have one output; got {len(args) + len(kwargs)}.")
    return TENSOR if op == "get_attr" else ANY


def _encoded(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 -- an argument can be anything
    if depth > DEEPEST:
        raise ProgramError(f"a structure that is nested more than {DEEPEST} deep cannot be part of a program")
    if isinstance(value, fx.Node):
        return {"node": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple) and type(value) is tuple:
        return {"tuple": [_encoded(item, depth + 1) for item in value]}
    if isinstance(value, list):
        return [_encoded(item, depth + 1) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encoded(item, depth + 1) for key, item in value.items()}}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    for kind, torch_type in _TORCH_VALUES.items():
        if isinstance(value, torch_type):
            return {kind: _name_of(value)}
    raise ProgramError(f"a value of type {type(value).__name__} cannot be part of a program")


def _decoded(value: Any, nodes: dict[str, fx.Node], depth: int = 0) -> Any:  # noqa: ANN401
    if depth > DEEPEST:
        raise ProgramError(f"the program has a structure that is nested more than {DEEPEST} deep.")
    if isinstance(value, list):
        return [_decoded(item, nodes, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ProgramError(f"an argument of the program must have one key; got {sorted(value)}.")
    ((kind, content),) = value.items()
    if kind == "node" and isinstance(content, str) and content in nodes:
        return nodes[content]
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "tuple" and isinstance(content, list):
        return tuple(_decoded(item, nodes, depth + 1) for item in content)
    if kind == "dict" and isinstance(content, dict):
        return {key: _decoded(item, nodes, depth + 1) for key, item in content.items()}
    if kind == "device" and isinstance(content, str):
        try:
            return torch.device(content)
        except RuntimeError as error:
            raise ProgramError(f"the program names the device {content!r}, which does not exist.") from error
    return _torch_value(kind, content)


def _torch_value(kind: str, name: object) -> Any:  # noqa: ANN401 -- a dtype, a layout or a memory format
    found = getattr(torch, name, None) if isinstance(name, str) and name.isidentifier() else None
    wanted = _TORCH_VALUES.get(kind)
    if wanted is None or not isinstance(found, wanted) or (kind == "dtype" and name not in DTYPES):
        raise ProgramError(f"the program has an argument that cannot be read: {kind!r}: {name!r}.")
    return found


def _name_of(value: object) -> str:
    return str(value).removeprefix("torch.")


def _module_names(root: nn.Module) -> set[str]:
    return {name for name, _ in root.named_modules(remove_duplicate=False) if name}


def _tensor_names(root: nn.Module) -> set[str]:
    named = *root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False)
    return {name for name, _ in named}


def _add_node(
    graph: fx.Graph,
    data: dict[str, Any],
    nodes: dict[str, fx.Node],
    kinds: dict[fx.Node, str],
    targets: dict[str, set[str]],
) -> None:
    name, op, target = data.get("name"), data.get("op"), data.get("target")
    args, kwargs = data.get("args"), data.get("kwargs")
    if not (isinstance(name, str) and isinstance(target, str) and isinstance(args, list) and isinstance(kwargs, dict)):
        raise ProgramError("a node of the program must have `name`, `op`, `target`, `args` and `kwargs`.")
    if op not in OPERATIONS or name in nodes or not name.isidentifier():
        raise ProgramError(f"the program has a node {name!r} that does {op!r}.")
    if op != "call_function" and not all(_is_plain(part) for part in target.split(".")):
        raise ProgramError(f"the program names {target!r}, which cannot be part of a model.")
    if op in targets and target not in targets[op]:
        raise ProgramError(f"the program names the {_KINDS[op]} {target!r}, which the model does not have.")
    if keyword.iskeyword(name) or not all(_is_plain(key) for key in kwargs):
        raise ProgramError(f"the program has a node {name!r} with names that cannot be used.")
    arguments = tuple(_decoded(argument, nodes) for argument in args)
    options = {key: _decoded(argument, nodes) for key, argument in kwargs.items()}
    kind = _checked_kind(op, target, arguments, options, kinds)
    function = function_of(target) if op == "call_function" else target
    nodes[name] = graph.create_node(op, function, arguments, options, name=name)
    kinds[nodes[name]] = kind


def _is_plain(part: str) -> bool:
    """Whether a name can be used unchanged in generated code: letters, digits and underscores."""
    return part.isascii() and part.replace("_", "a").isalnum() and not keyword.iskeyword(part)
