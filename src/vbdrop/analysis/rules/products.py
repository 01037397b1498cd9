"""Linear layers, convolutions and embeddings: where channels begin and end."""

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import ChannelFacts, Follower, ProductSite
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import arguments_of, concrete, size_of

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


def linear(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A linear layer reads and writes the last axis."""
    call = arguments_of(node)
    axis = len(size_of(call["input"])) - 1
    return _product(facts, node, axis, groups=1, transposed=False, folds=True)


def convolution(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A convolution reads and writes the axis before the spatial ones.

    Behind zero padding a uniform input gives an output that is not uniform at the borders, and behind a transposed
    convolution one that repeats with the stride: such a constant cannot go into a bias.
    """
    call = arguments_of(node)
    kernel = size_of(call["weight"])[2:]
    transposed = "transpose" in str(node.target)
    padding = concrete(call["padding"])
    unpadded = padding == "valid" or (
        set(kernel) == {1} if padding == "same" else not any(padding if isinstance(padding, list) else [padding])
    )
    axis = len(size_of(call["input"])) - len(kernel) - 1
    return _product(facts, node, axis, groups=call["groups"], transposed=transposed, folds=unpadded and not transposed)


def embedding(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """An embedding writes the last axis; a column with one value only is a constant."""
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
    channels = Channels.varying(len(size_of(node)) - 1, units)
    return channels.with_values((weight == weight[:1]).all(0), weight[0])


def _product(
    facts: ChannelFacts, node: fx.Node, axis: int, *, groups: int, transposed: bool, folds: bool
) -> Channels | None:
    call = arguments_of(node)
    weight, weight_name = facts.tensor(call["weight"]), facts.name(call["weight"])
    reason = facts.why_fixed(call["weight"], call["bias"])
    if reason or weight is None or weight_name is None:
        facts.keep(node, reason or "its weight is computed in the forward")
        return None
    inputs = _inputs(facts, call["input"], axis)
    matrix = _by_group(weight, groups, transposed)
    nonzero, total = (matrix != 0).any(-1), matrix.sum(-1)
    outputs = Channels.varying(axis, facts.units.new(groups * nonzero.shape[1]))
    outputs = outputs.with_values(*_constants(inputs, nonzero, total, facts.tensor(call["bias"]), folds))
    product = ProductSite(
        node, weight_name, facts.name(call["bias"]), inputs, outputs, transposed, folds, nonzero, total
    )
    _tie(facts, product)
    facts.products.append(product)
    return outputs


def _inputs(facts: ChannelFacts, node: fx.Node, axis: int) -> Channels:
    """The channels that enter; where they are not known, or lie on another axis, all of them stay."""
    channels = facts.channels(node)
    if channels is not None and channels.axis == axis:
        return channels
    if channels is not None:
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


def _tie(facts: ChannelFacts, product: ProductSite) -> None:
    """A weight that is used at several places has the same units at all of them."""
    sides: tuple[int | str, int | str] = (1, 0) if not product.transposed else (0, 1)
    if product.groups > 1:  # an axis of the weight then runs over the units of each group in turn
        sides = ("inputs", "outputs")
    facts.tie_tensor(product.weight, sides[0], product.inputs.units)
    facts.tie_tensor(product.weight, sides[1], product.outputs.units)
    if product.bias is not None:
        facts.tie_tensor(product.bias, 0, product.outputs.units)
