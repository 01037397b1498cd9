"""Turns a model into the program that is written as C: the graph of `torch.export`, node by node.

The graph is traced for one sample, so every shape is a number. What does not depend on the input is computed here.
Operations that only move values (views, slices, selections, transpositions) are run once on the positions themselves:
the result says which value goes where, whatever the operation.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from vbdrop._torch_compat import OpOverload, functional_program, pytree, schema_of
from vbdrop.analysis.graph import arguments_of
from vbdrop.exporting.c_builder import Builder, Call, Variable
from vbdrop.exporting.c_operations import OPERATIONS
from vbdrop.exporting.c_program import CProgram, Gather, fold_affine
from vbdrop.exporting.errors import ExportError
from vbdrop.exporting.program import tracing

# Operations that move values and compute nothing.
MOVES = frozenset(
    {
        "alias",
        "alpha_dropout",
        "chunk",
        "clone",
        "contiguous",
        "detach",
        "dropout",
        "expand",
        "expand_as",
        "feature_dropout",
        "flatten",
        "flip",
        "index",
        "index_select",
        "lift_fresh_copy",
        "movedim",
        "narrow",
        "permute",
        "pixel_shuffle",
        "pixel_unshuffle",
        "repeat",
        "reshape",
        "roll",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "swapaxes",
        "t",
        "transpose",
        "unbind",
        "unflatten",
        "unsqueeze",
        "_unsafe_view",
        "view",
        "view_as",
    }
)
# Operations that use only the shape of a value and return a constant.
CREATIONS = frozenset({"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"})
CASTS = frozenset({"to", "_to_copy"})
# Operations that put values side by side: the only others that can be written for integers and bools, since C computes
# in floats, which do not wrap around.
JOINS = frozenset({"cat", "stack"})


def read_program(model: nn.Module, example: torch.Tensor) -> CProgram:
    """Read `model`, in eval mode, as a program for one sample; `example` is an input with a batch of any size."""
    exported = _trace(model, example[:1])
    constants = _constants(exported)
    builder = Builder()
    source = Variable(builder.buffer(example[0].numel()), tuple(example.shape[1:]))
    values: dict[fx.Node, Any] = {}
    outputs: list[Any] = []
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            values[node] = constants.get(node.name, source)
        elif node.op == "output":
            pairs = zip(node.args[0], exported.graph_signature.output_specs, strict=True)
            outputs = [values.get(value, value) for value, spec in pairs if spec.kind is OutputKind.USER_OUTPUT]
        else:
            values[node] = _run(builder, node, values)
    if len(outputs) != 1:
        raise ExportError(f"the C writer writes models with one output; this one has {len(outputs)}.")
    if not isinstance(outputs[0], Variable | torch.Tensor):
        raise ExportError(f"the C writer writes models that return a tensor; this one returns {outputs[0]!r}.")
    result = builder.variable("output", outputs[0]).buffer
    if result == source.buffer:
        target = builder.buffer(result.size)
        builder.operations.append(Gather("output", result, target, np.zeros(1, np.int64), result.size))
        result = target
    return fold_affine(CProgram(source.buffer, result, builder.operations))


def _trace(model: nn.Module, example: torch.Tensor) -> ExportedProgram:
    """The graph of `model` for inputs of the shape of `example`, without in-place operations."""
    with tracing("torch.export cannot trace the model"):
        return functional_program(torch.export.export(model, (example,)))


def _constants(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    """Parameters, buffers and other tensors of the model, by the name of their placeholder."""
    values: dict[str, Any] = {**exported.constants, **exported.state_dict}
    constants: dict[str, torch.Tensor] = {}
    inputs = 0
    for spec in exported.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            constants[spec.arg.name] = values[str(spec.target)]
        else:
            inputs += 1
    if inputs != 1:
        raise ExportError(f"the C writer writes models with one input; this one has {inputs}.")
    return constants


def _run(builder: Builder, node: fx.Node, values: dict[fx.Node, Any]) -> Any:  # noqa: ANN401 -- a value of the graph can be anything
    """The value of one node: a variable, a constant, or a sequence of these."""
    if node.target is operator.getitem:
        sequence: Any = node.args[0]
        part = values[sequence][node.args[1]]
        if part is None and node.users:
            raise _bind(sequence, values).unsupported("the model uses more than its first output")
        return part
    call = _bind(node, values)
    if call.name.startswith("_assert"):
        return None
    variables = [value for value in pytree.tree_leaves(call.arguments) if isinstance(value, Variable)]
    if not variables or call.name in CREATIONS:
        return _constant(call, node)
    if call.name in CASTS and node.meta["val"].dtype.is_floating_point:
        return variables[0]
    if call.name in MOVES:
        return _move(builder, call, node, variables)
    if call.name not in OPERATIONS:
        raise call.unsupported()
    if call.name not in JOINS and not _first_output(node).dtype.is_floating_point:
        raise call.unsupported("it computes with integers or bools; convert them to floats before it")
    return OPERATIONS[call.name](builder, call)


def _bind(node: fx.Node, values: dict[fx.Node, Any]) -> Call:
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        raise ExportError(f"the C writer cannot write the operation `{target}` (node `{node.name}`).")
    first = _first_output(node)
    shape = tuple(int(size) for size in first.shape[1:]) if isinstance(first, torch.Tensor) else ()
    arguments = fx.map_arg(arguments_of(node), lambda used: values[used])
    return Call(schema_of(target).name.removeprefix("aten::"), node.name, dict(arguments), shape)


def _first_output(node: fx.Node) -> Any:  # noqa: ANN401 -- a value of the graph can be anything
    value = node.meta.get("val")
    return value[0] if isinstance(value, list | tuple) and value else value


def _constant(call: Call, node: fx.Node) -> Any:  # noqa: ANN401 -- a value of the graph can be anything
    target: Any = node.target
    if torch.Tag.nondeterministic_seeded in target.tags:
        raise call.unsupported("it is random")
    return target(**_with_tensors(call, lambda shape: torch.zeros(1, *shape, dtype=_first_output(node).dtype)))


def _move(builder: Builder, call: Call, node: fx.Node, variables: list[Variable]) -> Variable | list[Variable]:
    if len(variables) != 1:
        raise call.unsupported("it chooses values by other values")
    source = variables[0]
    if next(iter(call.arguments.values())) is not source:
        raise call.unsupported("it looks up a constant by the model's input")
    if "dtype" in call.arguments:
        raise call.unsupported("it reads the bits of the values as another type")
    target: Any = node.target
    moved = target(**_with_tensors(call, lambda shape: torch.arange(source.buffer.size).reshape(1, *shape)))
    parts = [moved] if isinstance(moved, torch.Tensor) else list(moved)
    if any(part.ndim == 0 or part.shape[0] != 1 for part in parts):
        raise call.unsupported("it moves the batch axis")
    if isinstance(moved, torch.Tensor):
        return builder.gather(call.node, source, moved[0])
    # `split_1` would be the name of the second split
    return [builder.gather(f"{call.node}_part{i}", source, part[0]) for i, part in enumerate(parts)]


def _with_tensors(call: Call, make: Callable[[tuple[int, ...]], torch.Tensor]) -> dict[str, Any]:
    """The arguments of a call, with each variable replaced by a tensor of its shape."""

    def replaced(value: object) -> object:
        return make(value.shape) if isinstance(value, Variable) else value

    return {name: pytree.tree_map(replaced, value) for name, value in call.arguments.items()}
