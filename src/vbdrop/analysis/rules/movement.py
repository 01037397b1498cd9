"""Operations that only move elements: views, permutations, slices, splits, rolls, indexing with constants.

The rule runs the operation itself on the indices of the channels and then finds the axes along which they lie.
"""

from typing import Any

import torch
from torch import Tensor, fx

from vbdrop._torch_compat import pytree
from vbdrop.analysis.channel_facts import ChannelFacts, Facts
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import arguments_of, concrete, is_tensor, size_of

VIEWS = ("view", "reshape", "_unsafe_view", "expand")
"""Operations whose arguments contain the sizes of their result."""

INDEXING = ("index", "index_select")
"""Operations that move elements by a tensor of indices."""

MOVEMENTS = (
    *VIEWS,
    *INDEXING,
    *("permute", "transpose", "t", "squeeze", "unsqueeze", "flip", "repeat", "roll"),
    *("slice", "select", "split", "split_with_sizes", "unbind", "repeat_interleave"),
)


def move(facts: ChannelFacts, node: fx.Node) -> Facts:
    """Find the axes on which the channels lie afterwards."""
    source = node.args[0]
    known = facts.by_node.get(source) if isinstance(source, fx.Node) else None
    if not isinstance(source, fx.Node) or not isinstance(known, Channels | Grid):
        for other in filter(None, map(facts.channels, node.all_input_nodes[1:])):
            facts.pin(other)
        return None
    axes = known.axes if isinstance(known, Grid) else (known.axis,)
    arguments = constant_arguments(facts, node)
    if arguments is None and _picks_elsewhere(node, axes):
        arguments = constant_arguments(facts, node, by_size=True)
    if arguments is None:
        facts.keep(node, f"{node.target} moves elements by the values of another tensor")
        return None
    if _is_scattered(node, arguments, known):
        facts.keep(node, f"{node.target} selects channels with several indices")
        return None
    if _is_fixed(facts, node, known):
        facts.keep(node, f"{node.target} has the number of channels as an argument")
        return None
    numbers = numbered(size_of(source), axes)
    moved = run(node, numbers, arguments)
    parts = [moved] if isinstance(moved, Tensor) else list(moved)
    found = [_located(part, numbers, known) for part in parts]
    if None in found:
        facts.keep(node, f"{node.target} selects channels one at a time", report=known.units.numel() > 1)
        return None
    return found[0] if isinstance(moved, Tensor) else list(found)


def constant_arguments(facts: ChannelFacts, node: fx.Node, *, by_size: bool = False) -> tuple[Any, ...] | None:
    """The other arguments of the operation; None if they depend on the model's inputs.

    Args:
        facts: The facts.
        node: The operation.
        by_size: Whether zeros of the same size may stand in for a tensor that depends on the inputs.
    """
    tensors = {source: constant(facts, source) for source in node.all_input_nodes[1:] if is_tensor(source)}
    if by_size:
        tensors = {s: torch.zeros(size_of(s), dtype=torch.long) if t is None else t for s, t in tensors.items()}
    if any(tensor is None for tensor in tensors.values()):
        return None

    def replaced(argument: Any) -> Any:  # noqa: ANN401 -- an argument can be anything
        if isinstance(argument, list | tuple):
            return [replaced(item) for item in argument]
        return tensors[argument] if isinstance(argument, fx.Node) and argument in tensors else concrete(argument)

    return tuple(replaced(argument) for argument in node.args[1:])


def constant(facts: ChannelFacts, node: fx.Node) -> Tensor | None:
    """The value of an integer buffer, possibly moved; None if the node depends on anything else."""
    name = facts.name(node)
    if name is not None:
        found = facts.traced.constants.get(name)
        tensor = facts.whole_numbers(name) if found is None else found
        return None if tensor is None else tensor.cpu()
    target = getattr(node.target, "overloadpacket", None)
    if getattr(target, "__name__", None) not in (*MOVEMENTS, "clone", "alias"):
        return None
    source, arguments = constant(facts, node.all_input_nodes[0]), constant_arguments(facts, node)
    result = None if source is None or arguments is None else run(node, source, arguments)
    return result if isinstance(result, Tensor) else None


def run(node: fx.Node, tensor: Tensor, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401 -- a tensor, or several
    """Apply the operation to a tensor."""
    is_view = node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
    # the indices are an expanded tensor, for which `view` fails
    operation: Any = torch.ops.aten.reshape.default if is_view else node.target
    return operation(tensor, *arguments, **node.kwargs)


def numbered(size: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    """A tensor of this size with the index of the channel at each position, expanded without extra memory."""
    shape = [length if axis in axes else 1 for axis, length in enumerate(size)]
    return torch.arange(torch.Size(shape).numel()).view(shape).expand(size)


def varying_axes(part: Tensor) -> tuple[int, ...]:
    """The axes along which a tensor varies; none for an empty tensor."""
    if not part.numel():
        return ()
    return tuple(axis for axis in range(part.dim()) if not bool((part == part.narrow(axis, 0, 1)).all()))


def _located(part: Tensor, numbers: Tensor, known: Channels | Grid) -> Channels | Grid | None:
    """The channels of a moved tensor, if they lie along its axes."""
    axes = varying_axes(part)
    if not axes and isinstance(known, Channels) and part.dim() == numbers.dim() and part.shape[known.axis] == 1:
        axes = (known.axis,)  # a slice of a single channel
    if not axes:
        return None
    index = part[tuple(slice(None) if axis in axes else 0 for axis in range(part.dim()))]
    if len(axes) == 1 and isinstance(known, Channels):
        return known.take(index, axes[0])
    units, constant, value = (field.flatten()[index] for field in (known.units, known.known, known.value))
    return Channels(axes[0], units, constant, value) if len(axes) == 1 else Grid(axes, units, constant, value)


def indexed_axes(node: fx.Node) -> list[int]:
    """The axes along which a tensor of indices selects."""
    call = arguments_of(node)
    if "indices" in call:
        return [axis for axis, index in enumerate(call["indices"]) if index is not None]
    return [call["dim"] % len(size_of(call["self"]))]


def _picks_elsewhere(node: fx.Node, axes: tuple[int, ...]) -> bool:
    """Whether an operation selects by a tensor of integers along axes other than the channel axes."""
    if node.target.overloadpacket.__name__ not in INDEXING or set(indexed_axes(node)) & set(axes):  # type: ignore
        return False
    return all(
        not s.meta["val"].dtype.is_floating_point and s.meta["val"].dtype != torch.bool
        for s in node.all_input_nodes[1:]
        if is_tensor(s)
    )


def _is_scattered(node: fx.Node, arguments: tuple[Any, ...], known: Channels | Grid) -> bool:
    """Whether channels are selected by anything other than one list of indices."""
    if node.target.overloadpacket.__name__ not in INDEXING:  # type: ignore[union-attr]
        return False
    along, axes = indexed_axes(node), known.axes if isinstance(known, Grid) else (known.axis,)
    indices = [i for i in pytree.tree_leaves(arguments) if isinstance(i, Tensor)]
    plain = len(along) == 1 and isinstance(known, Channels) and indices[0].dim() == 1 and indices[0].dtype != torch.bool
    return bool(set(along) & set(axes)) and not plain


def _is_fixed(facts: ChannelFacts, node: fx.Node, known: Channels | Grid) -> bool:
    """Whether the forward hard-codes a size that would have to change."""
    call, name = arguments_of(node), node.target.overloadpacket.__name__  # type: ignore[union-attr]
    axes = known.axes if isinstance(known, Grid) else (known.axis,)
    if not facts.rewrite and name in INDEXING:
        return bool(set(indexed_axes(node)) & set(axes))
    if not facts.frozen_shapes:
        return not facts.rewrite and name == "roll"
    along = name in ("slice", "split", "split_with_sizes") and call["dim"] % len(size_of(call["self"])) in axes
    return name in VIEWS or name == "roll" or bool(along)
