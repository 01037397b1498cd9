"""How each operation that lost channels is written into the graph of the small model."""

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, fx

from vbdrop._torch_compat import OpOverload, pytree, schema_of
from vbdrop.analysis.channel_facts import ProductSite, Scatter
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import arguments_of, size_of
from vbdrop.analysis.layer_shapes import beside, owner
from vbdrop.analysis.rules.movement import constant_arguments, indexed_axes
from vbdrop.compression.rewriting.counted_norms import COUNTED
from vbdrop.compression.rewriting.graph_writer import Writer
from vbdrop.compression.rewriting.recurrent_calls import result, selected

aten = torch.ops.aten


def product(writer: Writer, place: ProductSite) -> fx.Node:
    """A linear layer or convolution, which selects its inputs if more are present than it needs."""
    call = arguments_of(place.node)
    path = owner(place.weight)
    value, columns = writer.value(place.source), writer.inputs[place.weight]
    if columns.selected:
        value = writer.select(value, place.inputs.axis, columns.positions(), f"{path}_inputs".lstrip("_"))
    if writer.module_of(place.node) is not None:
        return writer.graph.create_node("call_module", path, (value,))
    if "input" not in call:
        return writer.graph.node_copy(place.node, lambda node: value if node is place.source else writer.value(node))
    call.update({name: fx.map_arg(argument, writer.value) for name, argument in call.items() if name != "input"})
    call["input"] = value
    if "groups" in call:
        call["groups"] = writer.plan.attributes.get(path, {}).get("groups", call["groups"])
    if place.bias is None and beside(place.weight, "bias") in writer.plan.add:
        call["bias"] = writer.graph.create_node("get_attr", beside(place.weight, "bias"))
    return writer.call(place.node.target, *call.values())


def scattered(writer: Writer, scatter: Scatter) -> fx.Node:
    """A sum whose terms have fewer channels: each is added where it has channels, and its constants elsewhere."""
    whole = writer.kept(scatter.outputs)
    masks = {term: writer.kept(part) for term, part in scatter.parts.items()}
    if all(torch.equal(mask, whole) for mask in masks.values()):
        return writer.copy(scatter.node)
    writer.new_operations = True
    name, axis = scatter.node.name, scatter.outputs.axis
    gone = writer.liveness.emptied(scatter.node)
    terms = {term: _taken(writer, scatter, term, mask, whole) for term, mask in masks.items() if term not in gone}
    value, rest = _base(writer, scatter, terms, masks, whole)
    constants = sum(torch.where(masks[term], 0.0, part.value)[whole] for term, part in scatter.parts.items())
    if isinstance(constants, Tensor) and bool(constants.any()):
        trailing = [1] * (len(size_of(scatter.node)) - axis - 1)
        constants = constants.to(scatter.node.meta["val"].dtype).view(-1, *trailing)
        value = writer.call(aten.add.Tensor, value, writer.buffer(f"{name}_constants", constants))
    for term, small in rest.items():
        where = masks[term][whole].nonzero().flatten()
        if len(where) == int(whole.sum()):
            value = writer.call(aten.add.Tensor, value, small)
        elif len(where):
            channels = writer.buffer(f"{name}_channels", where)
            value = writer.call(aten.index_add.default, value, axis, channels, small)
    return value


def _taken(writer: Writer, scatter: Scatter, term: fx.Node, mask: Tensor, whole: Tensor) -> fx.Node:
    """A term restricted to the channels that the sum keeps."""
    value = writer.value(term)
    if bool((mask <= whole).all()):
        return value
    positions = whole[mask].nonzero().flatten()
    return writer.select(value, scatter.outputs.axis, positions, f"{scatter.node.name}_selection")


def _base(
    writer: Writer, scatter: Scatter, terms: dict[fx.Node, fx.Node], masks: dict[fx.Node, Tensor], whole: Tensor
) -> tuple[fx.Node, dict[fx.Node, fx.Node]]:
    """A value with all channels of the sum, and the terms that must still be added to it."""
    if scatter.base is not None:
        return writer.value(scatter.base), terms
    for term in terms:
        if bool((whole <= masks[term]).all()):
            return terms[term], {other: small for other, small in terms.items() if other is not term}
    first = next(iter(terms.values()))
    count, channels = int(whole.sum()), scatter.outputs.axis
    axes = range(len(size_of(scatter.node)))
    sizes: list[Any] = [count if axis == channels else writer.call(aten.sym_size.int, first, axis) for axis in axes]
    return writer.call(aten.new_zeros.default, first, sizes), terms


def view(writer: Writer, node: fx.Node) -> fx.Node:
    """A view whose arguments contain the number of channels; written as a reshape, since strides may have changed."""
    call, channels = arguments_of(node), writer.facts.channels(node)
    is_expand = "expand" in str(node.target)
    sizes = list(call["size"] if "size" in call else call["shape"])
    grid = writer.facts.by_node.get(node)
    if isinstance(grid, Grid):
        for axis, count in writer.respell_grid(node, grid).items():
            sizes[axis] = count if sizes[axis] != -1 else -1
    if channels is not None and sizes[channels.axis] != -1:
        count = int(writer.kept(channels).sum())
        if count != len(channels):
            writer.respell(node, len(channels), count)
        # a symbolic size covers the whole batch, and -1 infers it
        sizes[channels.axis] = -1 if isinstance(sizes[channels.axis], fx.Node) else count
    target = aten.expand.default if is_expand else aten.reshape.default
    return writer.call(target, writer.value(call["self"]), fx.map_arg(sizes, writer.value))


def filled(writer: Writer, node: fx.Node) -> fx.Node:
    """A tensor with one value everywhere, made with the number of channels that remain."""
    channels, small = writer.facts.channels(node), writer.copy(node)
    if channels is None or bool(writer.kept(channels).all()):
        return small
    count = int(writer.kept(channels).sum())
    writer.respell(node, len(channels), count)
    at = list(arguments_of(node)).index("size")
    sizes = list(cast(list[Any], small.args[at]))
    sizes[channels.axis] = count
    small.args = (*small.args[:at], sizes, *small.args[at + 1 :])
    return small


def attention(writer: Writer, node: fx.Node) -> fx.Node:
    """Attention with the original scale, which depends on the number of features of a head before any is removed."""
    call = arguments_of(node)
    grid, count = writer.facts.by_node.get(call["query"]), size_of(call["query"])[-1]
    kept = count
    if isinstance(grid, Grid):
        kept = writer.liveness.kept_along(grid)[-1]
    elif isinstance(grid, Channels) and grid.axis == len(size_of(call["query"])) - 1:
        kept = int(writer.kept(grid).sum())
    small = writer.copy(node)
    if kept != count and call["scale"] is None:
        writer.new_operations = True
        small.kwargs = {**small.kwargs, "scale": count**-0.5}
    return small


def narrow(writer: Writer, node: fx.Node) -> fx.Node:
    """A slice of the channels, with its bounds counted in the remaining channels."""
    call = arguments_of(node)
    source = writer.facts.channels(call["self"])
    if source is None or call["dim"] % len(size_of(node)) != source.axis or bool(writer.kept(source).all()):
        return writer.copy(node)
    kept = writer.kept(source)
    start, stop, step = slice(call["start"], call["end"], call["step"]).indices(len(kept))
    if step != 1:
        positions = torch.arange(len(kept))[start:stop:step]
        among = kept.cumsum(0)[positions[kept[positions]]] - 1
        return writer.select(writer.value(call["self"]), source.axis, among, f"{node.name}_channels")
    writer.new_operations = True
    first = int(kept[:start].sum())
    return writer.call(
        aten.slice.Tensor, writer.value(call["self"]), source.axis, first, first + int(kept[start:stop].sum())
    )


def split(writer: Writer, node: fx.Node) -> fx.Node:
    """A split of the channels, with the remaining size of each part."""
    call, known = arguments_of(node), writer.facts.by_node.get(node)
    source = writer.facts.channels(call["self"])
    if source is None or not isinstance(known, list) or bool(writer.kept(source).all()):
        return writer.copy(node)
    if call["dim"] % len(size_of(call["self"])) != source.axis:
        return writer.copy(node)
    counts = [int(writer.kept(part).sum()) for part in cast(list[Channels], known)]
    if "split_size" in call and len(set(counts)) == 1:  # as `chunk` computes it for any size
        writer.respell(node, call["split_size"], counts[0])
        return writer.call(aten.split.Tensor, writer.value(call["self"]), counts[0], source.axis)
    writer.new_operations = True
    return writer.call(aten.split_with_sizes.default, writer.value(call["self"]), counts, source.axis)


def concatenation(writer: Writer, node: fx.Node) -> fx.Node:
    """A concatenation of the terms that still have channels."""
    gone = writer.liveness.emptied(node)
    if not gone:
        return writer.copy(node)
    writer.new_operations = True
    call = arguments_of(node)
    terms = [writer.value(term) for term in call["tensors"] if term not in gone]
    return terms[0] if len(terms) == 1 else writer.call(aten.cat.default, terms, call["dim"])


def roll(writer: Writer, node: fx.Node) -> fx.Node:
    """A rotation of the channels, by the number of rotated channels that remain."""
    call = arguments_of(node)
    source = writer.facts.channels(call["self"])
    dims = [dim % len(size_of(node)) for dim in call["dims"]]
    if source is None or source.axis not in dims or bool(writer.kept(source).all()):
        return writer.copy(node)
    writer.new_operations = True
    kept, shifts = writer.kept(source), list(call["shifts"])
    at = dims.index(source.axis)
    shifts[at] = int(kept[len(kept) - shifts[at] % len(kept) :].sum())
    return writer.call(aten.roll.default, writer.value(call["self"]), shifts, dims)


def indexed(writer: Writer, node: fx.Node) -> fx.Node:
    """Channels selected by index, with the new indices of those that remain."""
    call, result = arguments_of(node), writer.facts.channels(node)
    source = writer.facts.channels(call["self"])
    if source is None or result is None or indexed_axes(node) != [source.axis] or bool(writer.kept(source).all()):
        return writer.copy(node)
    (index,) = (i for i in pytree.tree_leaves(constant_arguments(writer.facts, node)) if isinstance(i, Tensor))
    among = writer.kept(source).cumsum(0)[index[writer.kept(result)]] - 1
    return writer.select(writer.value(call["self"]), source.axis, among, f"{node.name}_channels")


def overwritten(writer: Writer, node: fx.Node) -> fx.Node:
    """Channels with a replaced range: the channels before it, the new ones, and the channels after it."""
    call = arguments_of(node)
    base = writer.facts.channels(call["self"])
    if base is None or call["dim"] % len(size_of(node)) != base.axis or bool(writer.kept(base).all()):
        return writer.copy(node)
    writer.new_operations = True
    kept = writer.kept(base)
    start, stop, _ = slice(call["start"], call["end"]).indices(len(kept))
    value, count = writer.value(call["self"]), int(kept.sum())
    parts = [(0, int(kept[:start].sum())), (int(kept[:stop].sum()), count)]
    before, after = (writer.call(aten.slice.Tensor, value, base.axis, *part) for part in parts)
    return writer.call(aten.cat.default, [before, writer.value(call["src"]), after], base.axis)


def replaced(writer: Writer, node: fx.Node) -> fx.Node:
    """The new value, in place of the one that it overwrites."""
    old, new = (cast(fx.Node, argument) for argument in node.args[:2])
    is_same = size_of(old) == size_of(new) and old.meta["val"].dtype == new.meta["val"].dtype
    if not is_same:
        return writer.copy(node)
    return writer.call(aten.clone.default, writer.value(new)) if _is_returned(writer, node) else writer.value(new)


def copied_value(writer: Writer, node: fx.Node) -> fx.Node:
    """No operation: in a graph without side effects a copy equals the value itself, unless it is returned."""
    return writer.copy(node) if _is_returned(writer, node) else writer.value(cast(fx.Node, node.args[0]))


def _is_returned(writer: Writer, node: fx.Node) -> bool:
    """Whether a value or a view of it is a result, into which the caller may write."""
    if any(leaf is node for leaf in pytree.tree_leaves(writer.facts.traced.output)):
        return True
    return any(_is_view(user) and _is_returned(writer, user) for user in node.users)


def _is_view(node: fx.Node) -> bool:
    """Whether the result of an operation may share its memory with an argument."""
    if not isinstance(node.target, OpOverload):
        return node.target is operator.getitem
    return any(result.alias_info is not None for result in schema_of(node.target).returns)


def item(writer: Writer, node: fx.Node) -> fx.Node:
    """An element of a list; a batch normalisation that is called as a module returns its only result directly."""
    source = cast(fx.Node, node.args[0])
    if source in writer.facts.recurrent:
        return result(writer, node, writer.facts.recurrent[source])
    if writer.module_of(source) is not None:
        return writer.value(source)
    return writer.copy(node)


EDITS: dict[Any, Callable[[Writer, fx.Node], fx.Node]] = {
    operator.getitem: item,
    aten.clone.default: copied_value,
    aten.view.default: view,
    aten.reshape.default: view,
    aten._unsafe_view.default: view,
    aten.expand.default: view,
    **dict.fromkeys((aten.zeros.default, aten.ones.default, aten.full.default), filled),
    **dict.fromkeys((aten.new_zeros.default, aten.new_ones.default, aten.new_full.default), filled),
    aten.scaled_dot_product_attention.default: attention,
    aten.slice.Tensor: narrow,
    aten.select.int: selected,
    aten.split.Tensor: split,
    aten.split_with_sizes.default: split,
    aten.cat.default: concatenation,
    aten.roll.default: roll,
    aten.index.Tensor: indexed,
    aten.index_select.default: indexed,
    aten.slice_scatter.default: overwritten,
    aten.copy.default: replaced,
    **COUNTED,
}
"""Operation -> how it is written; every other operation is written unchanged."""
