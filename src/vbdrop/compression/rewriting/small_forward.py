"""The forward of the small model as a program: modules called by name, and the operations that changed."""

import inspect
import operator
from typing import Any

import torch
from torch import fx, nn

from vbdrop._torch_compat import pytree
from vbdrop.analysis.graph import Traced
from vbdrop.analysis.liveness import Liveness
from vbdrop.compression.planning.plan import ForwardProgram, Plan
from vbdrop.compression.planning.plan_from_liveness import Columns
from vbdrop.compression.rewriting.graph_writer import Writer
from vbdrop.compression.rewriting.node_rewrites import EDITS, product, scattered
from vbdrop.compression.rewriting.operations import OTHER_ARGUMENTS, OTHER_SIZES
from vbdrop.compression.rewriting.program import ProgramError, encode, encoded_tensor
from vbdrop.compression.rewriting.recurrent_calls import called


def rewrite(liveness: Liveness, inputs: dict[str, Columns], plan: Plan, *, fixed_sizes: bool = False) -> Writer:
    """Write the graph of the small model.

    Args:
        liveness: Which units are kept.
        inputs: The inputs that each weight keeps.
        plan: The plan, without a program.
        fixed_sizes: Whether the graph refuses inputs whose sizes, except for the batch, differ from the traced ones.

    Returns:
        The graph writer, which also knows how its graph differs from the traced one.

    Raises:
        ProgramError: If an input or output has a structure that a graph cannot have, or if a graph would not be valid
            for other inputs.
    """
    writer = Writer(liveness, inputs, plan)
    objection = _objection(liveness.facts.traced)
    try:
        _write(writer, fixed_sizes=fixed_sizes)  # always: the plan gets the sizes that the original forward reads
    finally:
        if objection:
            raise ProgramError(objection)
    return writer


def _objection(traced: Traced) -> str | None:
    """Why a graph would not be a valid forward for other inputs; None if it would be."""
    if traced.packs:
        return "it packs sequences, which a graph cannot do"
    if traced.effects:
        return "it changes buffers of the model"
    for question, size in traced.guards.items():
        return f"a batch of {size} takes another branch of it, since it asks for {question}"
    for argument in traced.inputs:
        for leaf in pytree.tree_leaves(argument.tree):
            if not isinstance(leaf, fx.Node):
                reason = f"`{argument.name}` holds {leaf!r}, and a graph would always use that value"
                return f"{reason}; leave it out of the example inputs if it is the default"
    return None


def _write(writer: Writer, *, fixed_sizes: bool) -> None:
    """Write the inputs, the remaining operations, and the outputs."""
    liveness, traced = writer.liveness, writer.facts.traced
    _add_inputs(writer)
    if fixed_sizes:
        for argument in traced.inputs:
            _fix_sizes(writer, argument.tree)
    products = {place.node: place for place in liveness.facts.products}
    scatters = {scatter.node: scatter for scatter in liveness.facts.scatters}
    for node in traced.graph.nodes:
        if node.op != "call_function" or node not in liveness.reached or node in liveness.facts.initial_states:
            continue
        if node in liveness.facts.recurrent:
            writer.values[node] = called(writer, node, liveness.facts.recurrent[node])
        elif node in products:
            writer.values[node] = product(writer, products[node])
        elif node in scatters:
            writer.values[node] = scattered(writer, scatters[node])
        else:
            writer.values[node] = EDITS.get(node.target, Writer.copy)(writer, node)
    writer.graph.output(_structure(writer, traced.output))


def program_of(writer: Writer) -> ForwardProgram:
    """The written graph as data.

    Raises:
        ProgramError: If the graph contains something that cannot be written as data.
    """
    buffers = {name: encoded_tensor(tensor) for name, tensor in writer.buffers.items()}
    return ForwardProgram(encode(writer.graph), buffers, _removed(writer.graph, writer.facts.model))


def _has_nodes(tree: object) -> bool:
    return any(isinstance(leaf, fx.Node) for leaf in pytree.tree_leaves(tree))


def _add_inputs(writer: Writer) -> None:
    """Add the arguments of the example.

    A parameter that the example skips but that comes before one of its arguments keeps its position, so that no other
    argument takes it, and calls must leave it out.
    """
    parameters = inspect.signature(writer.facts.model.forward).parameters.values()
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    given = {argument.name: argument.tree for argument in writer.facts.traced.inputs}
    names = list(dict.fromkeys([*(parameter.name for parameter in parameters if parameter.kind in kinds), *given]))
    while names and names[-1] not in given:
        names.pop()
    optional = False  # in Python, all parameters after one with a default must have a default
    for name in names:
        optional = optional or name not in given
        value = writer.graph.placeholder(name, default_value=None) if optional else writer.graph.placeholder(name)
        if optional:
            missing = writer.call(operator.eq, value, None)
            as_in_example = writer.call(operator.eq, missing, 0) if name in given else missing
            writer.call(torch.ops.aten._assert_scalar.default, as_in_example, OTHER_ARGUMENTS)
        if name in given:
            _unpack(writer, value, given[name])


def _unpack(writer: Writer, value: fx.Node, tree: Any) -> None:  # noqa: ANN401 -- any structure of inputs
    """Unpack an argument that holds several tensors."""
    if isinstance(tree, fx.Node):
        writer.values[tree] = value
    elif isinstance(tree, dict | list | tuple):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if _has_nodes(part):
                _unpack(writer, writer.call(operator.getitem, value, key), part)
    elif _has_nodes(tree):
        raise ProgramError(f"an input is a {type(tree).__name__}, which a graph cannot unpack")


def _fix_sizes(writer: Writer, tree: Any) -> None:  # noqa: ANN401 -- any structure of inputs
    """Refuse tensors of sizes other than the traced ones; a size that was traced as free may vary."""
    for leaf in pytree.tree_leaves(tree):
        for axis, size in enumerate(leaf.meta["val"].shape):
            if isinstance(size, int):
                found = writer.call(torch.ops.aten.sym_size.int, writer.value(leaf), axis)
                writer.call(torch.ops.aten._assert_scalar.default, writer.call(operator.eq, found, size), OTHER_SIZES)


def _structure(writer: Writer, tree: Any) -> Any:  # noqa: ANN401 -- any structure of outputs
    """The new values in the structure that the forward returns."""
    if isinstance(tree, fx.Node):
        return writer.value(tree)
    if type(tree) in (list, tuple):
        return type(tree)(_structure(writer, part) for part in tree)
    if type(tree) is dict:
        return {key: _structure(writer, part) for key, part in tree.items()}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise ProgramError(f"an output is a {type(tree).__name__}, which a graph cannot return")


def _removed(graph: fx.Graph, model: nn.Module) -> list[str]:
    """The parameters and buffers that no node uses."""
    modules = tuple(f"{node.target}." for node in graph.nodes if node.op == "call_module")
    tensors = {node.target for node in graph.nodes if node.op == "get_attr"}
    return [name for name in model.state_dict() if name not in tensors and not name.startswith(modules)]
