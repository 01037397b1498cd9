"""Linear layers, convolutions and embeddings: where channels begin and end."""

from typing import NamedTuple

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import ChannelFacts, Follower, ProductSite
from vbdrop.analysis.channels import Channels, Grid
from vbdrop.analysis.graph import arguments_of, concrete, size_of
from vbdrop.analysis.rules.attention import MATRIX, batched_product
from vbdrop.analysis.rules.parameters import joined_parameters

MATRIX_PRODUCTS = ("matmul", "mm", "bmm", "addmm")

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


class ProductCall(NamedTuple):
    """A product, as read from the graph.

    Attributes:
        node: The operation.
        source: Its input.
        weight: The weights.
        bias: The bias, or None.
        in_axis: The axis of the inputs.
        out_axis: The axis of the outputs.
        groups: The number of groups.
        transposed: Whether the weight's first axis runs over inputs.
        folds: Whether a spatially uniform input channel has a uniform effect.
        takes_bias: Whether the operation can take a bias.
    """

    node: fx.Node
    source: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    in_axis: int
    out_axis: int
    groups: int = 1
    transposed: bool = False
    folds: bool = True
    takes_bias: bool = True


def linear(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A linear layer reads and writes the last axis."""
    call = arguments_of(node)
    axis = len(size_of(call["input"])) - 1
    return _product(facts, ProductCall(node, call["input"], call["weight"], call["bias"], axis, axis))


def matrix_product(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """A product with a weight matrix, inputs first, as in `x @ weight` and `torch.addmm`; or one of activations."""
    call = arguments_of(node)
    bias, source, weight = None, call["self"], call["mat2" if "mat2" in call else "other"]
    if "mat1" in call:
        bias, source = call["self"], call["mat1"]
    is_plain = bias is None or call["beta"] == call["alpha"] == 1
    if not is_plain or facts.name(weight) is None or len(size_of(weight)) != MATRIX:
        return batched_product(facts, node)
    axes = len(size_of(source)) - 1, len(size_of(node)) - 1
    return _product(facts, ProductCall(node, source, weight, bias, *axes, transposed=True, takes_bias=bias is not None))


def einsum(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A contraction with a weight matrix along one axis, such as ``"bti,io->bto"``."""
    equation, tensors = str(node.args[0]).replace(" ", ""), node.all_input_nodes
    sides, _, result = equation.partition("->")
    letters = dict(zip(tensors, sides.split(","), strict=False))
    weights = [term for term in letters if facts.name(term) is not None]
    if len(letters) == 2 and len(weights) == 1 and result and "." not in equation:
        (weight,), (source,) = weights, [term for term in letters if term not in weights]
        own, other = letters[weight], letters[source]
        summed, kept = "".join(set(own) - set(result)), "".join(set(own) - set(other))
        is_matrix = len(own) == MATRIX and len(summed) == len(kept) == 1
        if is_matrix and sorted(other + kept) == sorted(result + summed) and len(set(other)) == len(other):
            axes = other.index(summed), result.index(kept)
            in_order = other.replace(summed, "") == result.replace(kept, "")
            if in_order or facts.channels_along(source, axes[0]) is not None:  # no channels on an axis that moves
                site = ProductCall(node, source, weight, None, *axes, takes_bias=False)
                return _product(facts, site._replace(transposed=own.startswith(summed)))
    facts.keep(node, f"{node.target} reads every channel", report=False)
    return None


def convolution(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A convolution reads and writes the axis before the spatial ones.

    With zero padding, a uniform input gives an output that differs at the borders; a transposed convolution gives one
    that repeats with the stride. Such a constant cannot be folded into a bias.
    """
    call = arguments_of(node)
    kernel = size_of(call["weight"])[2:]
    transposed = "transpose" in str(node.target)
    padding = concrete(call["padding"])
    unpadded = padding == "valid" or (
        set(kernel) == {1} if padding == "same" else not any(padding if isinstance(padding, list) else [padding])
    )
    axis = len(size_of(call["input"])) - len(kernel) - 1
    site = ProductCall(node, call["input"], call["weight"], call["bias"], axis, axis)
    return _product(
        facts, site._replace(groups=call["groups"], transposed=transposed, folds=unpadded and not transposed)
    )


def embedding(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """An embedding writes the last axis; a column with a single value is a constant."""
    call = arguments_of(node)
    weight, name = facts.tensor(call["weight"]), facts.name(call["weight"])
    reason = facts.why_fixed(call["weight"])
    if reason or weight is None or name is None:
        facts.keep(node, reason or "its weight is computed in the forward")
        return None
    units = facts.units.new(weight.shape[1])
    facts.tie_tensor(name, 1, units)
    facts.tie_tensor(name, 0, facts.pinned_channels(0, weight.shape[0]).units)
    facts.followers.append(Follower(node, name, 1, units))
    facts.other_writers.setdefault(name, units)
    channels = Channels.varying(len(size_of(node)) - 1, units)
    return channels.with_values((weight == weight[:1]).all(0), weight[0])


def _product(facts: ChannelFacts, call: ProductCall) -> Channels | None:
    weight, weight_name = facts.tensor(call.weight), facts.name(call.weight)
    joined = None if call.bias is None or facts.name(call.bias) else joined_parameters(facts, call.bias)
    call = call if joined is None else call._replace(bias=None, takes_bias=False)
    reason = facts.why_fixed(call.weight, call.bias)
    if reason or weight is None or weight_name is None:
        facts.keep(call.node, reason or "its weight is computed in the forward")
        return None
    across = _across(facts, call)
    inputs = entering(facts, call.source, call.in_axis, passed=across is not None)
    _say_why_pinned(facts, call, across)
    matrix = _by_group(weight, call.groups, call.transposed)
    nonzero, total = (matrix != 0).any(-1), matrix.sum(-1)
    outputs = Channels.varying(call.out_axis, facts.units.new(call.groups * nonzero.shape[1]))
    bias = facts.tensor(call.bias) if joined is None else joined.value
    outputs = outputs.with_values(*_constants(inputs, nonzero, total, bias, call.folds))
    if joined is not None:
        facts.units.tie(outputs.units, joined.units)
    product = ProductSite(
        *(call.node, call.source, weight_name, facts.name(call.bias), inputs, outputs),
        *(call.transposed, call.folds, call.takes_bias, nonzero, total),
    )
    tie(facts, product)
    facts.products.append(product)
    if across is None:
        return outputs
    facts.need_all(call.node, outputs.units, "it mixes positions, and the channels go through it")
    zero = across.known & (across.value == 0) if bias is None else torch.zeros_like(across.known)
    return across.with_values(zero, across.value)


def _say_why_pinned(facts: ChannelFacts, call: ProductCall, across: Channels | None) -> None:
    """Record that channels stay if a product works along them, as the convolution in channel attention does."""
    known = facts.by_node.get(call.source)
    if across is None and isinstance(known, Channels) and known.axis != call.in_axis:
        reason = f"{call.node.target} works along the channels, whose order has to stay"
        facts.kept_for.append((known.units, reason))
        facts.left.setdefault(facts.place(call.node), reason)


def _across(facts: ChannelFacts, call: ProductCall) -> Channels | None:
    """The channels on which a product acts independently: those on an axis before the one that it works on.

    A layer that mixes positions, as in an MLP-Mixer, passes these channels through unchanged.
    """
    if facts.channels_along(call.source, call.in_axis) is not None:
        return None
    channels = facts.channels(call.source)
    passes = channels is not None and channels.axis < call.in_axis == call.out_axis
    return channels if passes else None


def entering(facts: ChannelFacts, node: fx.Node, axis: int, *, passed: bool = False) -> Channels:
    """The input channels; if they are unknown or lie on another axis, all of them are kept.

    Args:
        facts: The forward pass.
        node: The input.
        axis: The axis that the product reads.
        passed: Whether channels on another axis are passed through.
    """
    channels = facts.channels_along(node, axis) or facts.channels(node)
    if channels is not None and channels.axis == axis:
        return channels
    if channels is not None and not passed:
        facts.pin(channels)
    return facts.pinned_channels(axis, size_of(node)[axis])


def _by_group(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    """The weight as [groups, outputs, inputs, kernel]."""
    matrix = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return matrix.transpose(1, 2) if transposed else matrix


def _constants(
    inputs: Channels, nonzero: Tensor, total: Tensor, bias: Tensor | None, folds: bool
) -> tuple[Tensor, Tensor]:
    """Which outputs are constants, and their values."""
    groups, outputs, _ = nonzero.shape
    uniform = inputs.known & (inputs.value == 0) if not folds else inputs.known
    varies = nonzero & ~uniform.view(groups, 1, -1)
    added = (total * torch.where(uniform, inputs.value, 0.0).view(groups, 1, -1)).sum(-1)
    value = added.flatten() if bias is None else added.flatten() + bias
    return ~varies.any(-1).flatten(), value.view(groups * outputs)


def tie(facts: ChannelFacts, product: ProductSite) -> None:
    """Tie the units of a weight that is used at several places."""
    sides: tuple[int | str, int | str] = (1, 0) if not product.transposed else (0, 1)
    if product.groups > 1:  # an axis of the weight then indexes different units in each group
        sides = ("inputs", "outputs")
    facts.tie_tensor(product.weight, sides[0], product.inputs.units)
    facts.tie_tensor(product.weight, sides[1], product.outputs.units)
    if product.bias is not None:
        facts.tie_tensor(product.bias, 0, product.outputs.units)
