"""The traced graph of a model: the result of `torch.export`, linked to the model by parameter names."""

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from vbdrop._torch_compat import functional_program, holds, pytree, schema_of
from vbdrop.analysis.causal_masks import masks_as_given
from vbdrop.analysis.key_value_cache import without_cache
from vbdrop.analysis.packed_sequences import padded_sequences
from vbdrop.analysis.unread_layers import results_returned, unread_layers
from vbdrop.analysis.whole_recurrences import as_recurrences_, whole_recurrences

TRIED_BATCHES = (*range(1, 65), *(2**power for power in range(7, 31)))
"""The batch sizes at which the conditions in a forward are evaluated."""


class TraceError(ValueError):
    """Raised if `torch.export` cannot trace a model; the message says why."""


@dataclass(frozen=True)
class Input:
    """One argument of the traced ``forward``.

    Attributes:
        name: Its name in the signature.
        tree: The argument with its leaves replaced by graph nodes, or by constants where the trace fixed them.
    """

    name: str
    tree: Any


@dataclass(frozen=True)
class Traced:
    """A model's eval forward as a functional graph of ATen operations.

    Attributes:
        graph: The graph; parameters, buffers and constants are placeholders in it.
        names: Such a placeholder -> its dotted name in the model.
        constants: Tensors that the forward creates itself (``torch.tensor([...])``), by name.
        inputs: The arguments, in the order of the signature.
        output: The structure that the forward returns, with graph nodes for its tensors.
        effects: Nodes whose values the forward writes into buffers.
        unread: The results of layers that the forward calls without reading them.
        batch: The number of examples in a batch, as traced.
        guards: A condition on the batch size that held in the trace, such as ``"batch <= 16"`` -> a size for which it
            fails: at that size the forward may do something that the graph does not show.
        packs: Whether the forward packs sequences. The graph then shows them padded: its channels are correct, its
            values are not.
    """

    graph: fx.Graph
    names: dict[fx.Node, str]
    constants: dict[str, Tensor]
    inputs: list[Input]
    output: Any
    effects: list[fx.Node]
    batch: int
    guards: dict[str, int]
    packs: bool = False
    unread: list[fx.Node] = field(default_factory=list)

    @property
    def results(self) -> list[fx.Node]:
        """The nodes that the forward returns."""
        return [leaf for leaf in pytree.tree_leaves(self.output) if isinstance(leaf, fx.Node)]


def trace(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Traced:
    """Trace a model in eval mode, with a free batch size if the model allows it.

    Args:
        model: A plain model, in eval mode.
        args: Example inputs by position.
        kwargs: Example inputs by name.

    Raises:
        TraceError: If `torch.export` cannot trace the model; the message says why.

    Example:
        >>> traced = trace(nn.Linear(3, 2).eval(), (torch.zeros(4, 3),))
        >>> [node.name for node in traced.graph.nodes if node.op == "call_function"]
        ['linear']
        >>> sorted(traced.names.values())
        ['bias', 'weight']
    """
    named = dict(kwargs or {})
    try:
        with padded_sequences(model) as packs:
            traced = _functional(model, args, named)
            if layers := unread_layers(model, [name for node, name in traced.names.items() if node.users], args, named):
                with results_returned(model, layers):
                    traced = _functional(model, args, named)
                output, results = traced.output
                unread = [result for result in pytree.tree_leaves(results) if isinstance(result, fx.Node)]
                traced = replace(traced, output=output, unread=unread)
    except Exception as error:  # torch.export raises whatever the model's own code raises
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise TraceError(f"torch.export cannot trace the model: {reason.strip()}") from error
    return replace(traced, packs=bool(packs))


def _functional(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    program = functional_program(export(model, args, kwargs))
    as_recurrences_(program.graph)
    return _read(model, program)


def size_of(node: fx.Node) -> tuple[int, ...]:
    """The shape of a tensor node, with traced sizes in place of symbolic ones."""
    return tuple(_concrete(size) for size in node.meta["val"].shape)


def is_tensor(node: object) -> bool:
    """Whether this is a node whose value is one tensor."""
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), Tensor)


def concrete(argument: Any) -> Any:  # noqa: ANN401 -- an argument of an operation can be anything
    """An argument with the traced numbers in place of symbolic ones."""
    if isinstance(argument, fx.Node):
        return _concrete(argument.meta["val"])
    if isinstance(argument, list | tuple):
        return [concrete(item) for item in argument]
    return argument


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """The arguments of an operation by their names in its schema, including defaults."""
    bound = {argument.name: argument.default_value for argument in schema_of(node.target).arguments}
    bound.update(zip(bound, node.args, strict=False))
    bound.update(node.kwargs)
    return bound


def _concrete(size: Any) -> Any:  # noqa: ANN401 -- a number, symbolic or not
    return size.node.hint if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) else size


def export(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    free_axes: Callable[[Tensor], Iterable[int]] = lambda tensor: range(min(1, tensor.dim())),
) -> ExportedProgram:
    """Export a model; a batch of one is doubled, since torch treats a size of 1 as fixed.

    Args:
        model: A plain model, in eval mode.
        args: Example inputs by position.
        kwargs: Example inputs by name.
        free_axes: For each input, the axes that may have any size if the model allows it.
    """
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.dim()]
    if tensors and all(tensor.shape[0] == 1 for tensor in tensors):
        try:
            more_args, more_kwargs = pytree.tree_map(_doubled, (args, kwargs))
            return _export_as_is(model, more_args, more_kwargs, free_axes)
        except Exception:  # the leading axis is not a batch after all: trace the inputs as given
            return _export_as_is(model, args, kwargs, free_axes)
    return _export_as_is(model, args, kwargs, free_axes)


def _doubled(leaf: object) -> object:
    return torch.cat([leaf, leaf]) if isinstance(leaf, Tensor) and leaf.dim() else leaf


def _export_as_is(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], free_axes: Callable[[Tensor], Iterable[int]]
) -> ExportedProgram:
    def axes(leaf: object) -> dict[int, Any] | None:
        return dict.fromkeys(free_axes(leaf), Dim.AUTO) if isinstance(leaf, Tensor) and leaf.dim() else None

    arguments = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    shapes = {name: pytree.tree_map(axes, value) for name, value in arguments.items()}
    with (
        warnings.catch_warnings(),
        redirect_stderr(StringIO()),  # on an error, torch prints the graph so far, often hundreds of lines
        torch.no_grad(),
        without_cache(model),
        whole_recurrences(),
        masks_as_given(),
        _no_new_attributes(model),
    ):
        warnings.simplefilter("ignore")  # torch's own, about its own code
        program: ExportedProgram = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
    return program


@contextmanager
def _no_new_attributes(model: nn.Module) -> Iterator[None]:
    """Remove what a forward stores on its modules for the first time: tensors of the trace, which have no data.

    Attributes that were there before are restored by torch.export.
    """
    before = [(module, set(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for module, names in before:
            for name in set(vars(module)) - names:
                delattr(module, name)


def _read(model: nn.Module, program: ExportedProgram) -> Traced:
    """Collect what the analysis needs from the exported program."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    names: dict[fx.Node, str] = {}
    user_inputs = []
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            user_inputs.append(node)
        elif spec.target is not None:
            names[node] = spec.target
    output_node = next(node for node in program.graph.nodes if node.op == "output")
    returned: list[Any] = []
    effects: list[Any] = []
    for value, out in zip(output_node.args[0], program.graph_signature.output_specs, strict=True):
        (returned if out.kind == OutputKind.USER_OUTPUT else effects).append(value)
    in_spec, out_spec = program.call_spec.in_spec, program.call_spec.out_spec
    if in_spec is None or out_spec is None:
        raise TraceError("torch.export returned no structure of the inputs and outputs")
    leaves = [node if is_tensor(node) else _concrete(node.meta.get("val")) for node in user_inputs]
    batch = next((size_of(node)[0] for node in user_inputs if is_tensor(node) and size_of(node)), 1)
    return Traced(
        graph=program.graph,
        names=names,
        constants={name: value for name, value in program.constants.items() if isinstance(value, Tensor)},
        inputs=_named_inputs(model, *pytree.tree_unflatten(leaves, in_spec)),
        output=pytree.tree_unflatten(returned, out_spec),
        effects=[value for value in effects if isinstance(value, fx.Node)],
        batch=batch,
        guards=_guards(user_inputs),
    )


def _guards(inputs: list[fx.Node]) -> dict[str, int]:
    """The conditions on the sizes of the inputs, each with the first size that would change its outcome.

    Equality of two inputs' batch sizes is ignored, and so is equality with a fixed number: such an axis is not a batch,
    or the graph allows no other size.
    """
    sizes = [size for node in inputs if is_tensor(node) for size in node.meta["val"].shape]
    environments = [size.node.shape_env for size in sizes if isinstance(size, torch.SymInt)]
    found = {}
    for guard in environments[0].guards if environments else ():
        expression = guard.expr
        if re.fullmatch(r"Eq\(s\d+, (s\d+|\d+)\)", str(expression)):
            continue
        other = next((size for size in TRIED_BATCHES if not _holds(expression, size)), None)
        if other is not None:
            found[re.sub(r"\bs\d+\b", "batch", str(expression))] = other
    return found


def _holds(expression: Any, size: int) -> bool:  # noqa: ANN401 -- an expression of sympy
    try:
        return holds(expression, dict.fromkeys(expression.free_symbols, size))
    except (TypeError, ZeroDivisionError):  # undecidable
        return True


def _named_inputs(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Input]:
    """The arguments by name, in the order of the signature; ``*args`` become ``args_0``, ``args_1``, ..."""
    kinds = inspect.Parameter
    positional: list[str] = []
    parameters = inspect.signature(model.forward).parameters
    for parameter in parameters.values():
        if parameter.kind == kinds.VAR_POSITIONAL:
            positional += [f"{parameter.name}_{i}" for i in range(len(args) - len(positional))]
        elif parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
            positional.append(parameter.name)
    order = {name: place for place, name in enumerate(parameters)}
    named = sorted(kwargs.items(), key=lambda item: order.get(item[0], len(order)))  # ``**kwargs`` last
    return [Input(name, tree) for name, tree in [*zip(positional, args, strict=False), *named]]
