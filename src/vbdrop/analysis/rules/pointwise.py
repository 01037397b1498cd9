"""Elementwise functions: the channels stay the same, and the function is applied to constants."""

import torch
from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.channels import Channels, Grid

POINTWISE = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish"),
    *("hardswish", "hardsigmoid", "hardtanh", "threshold"),
    *("sigmoid", "tanh", "softplus", "log_sigmoid", "erf", "sin", "cos"),
    *("abs", "neg", "sign", "exp", "expm1", "log1p", "square", "sqrt", "rsqrt", "reciprocal", "floor", "ceil", "round"),
    *("clamp", "clamp_min", "clamp_max", "pow"),
)

IDENTITIES = (
    *("clone", "alias", "detach", "contiguous", "dropout", "feature_dropout", "alpha_dropout"),
    *("_to_copy", "to", "type_as"),
)
"""Operations that return their input in eval mode; a cast does so up to its precision."""


COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne", "isnan", "isinf", "logical_not", "bitwise_not")
"""Comparisons of each element with a number."""


NEW_TENSORS = ("new_zeros", "new_ones", "new_full")
"""Operations that take only the dtype and the device from a tensor."""


def new_tensor(facts: ChannelFacts, node: fx.Node) -> None:
    """Do nothing: no channel is read, and the new tensor has no known channels."""


def pointwise(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """Apply the operation itself to the constants."""
    source, *arguments = node.args
    channels = facts.by_node.get(source) if isinstance(source, fx.Node) else None
    if not isinstance(channels, Channels | Grid) or any(isinstance(argument, fx.Node) for argument in arguments):
        facts.keep(node, f"{node.target} gets a tensor where a number is expected")
        return None
    value = node.target(channels.value, *arguments, **node.kwargs)  # type: ignore[operator]  # an OpOverload
    return channels.with_values(channels.known & value.isfinite(), value)


def compare(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """Keep the channels; booleans are not tracked as constants."""
    known = facts.by_node.get(node.args[0]) if isinstance(node.args[0], fx.Node) else None
    if len(node.all_input_nodes) != 1 or not isinstance(known, Channels | Grid):
        facts.keep(node, f"{node.target} compares tensors", report=False)
        return None
    return known.with_values(torch.zeros_like(known.known), known.value)


def identity(facts: ChannelFacts, node: fx.Node) -> Channels | Grid | None:
    """Keep the channels, unless a cast to integers truncates them."""
    if not node.meta["val"].dtype.is_floating_point:
        facts.keep(node, "it is cast to integers")
        return None
    known = facts.by_node.get(node.args[0]) if isinstance(node.args[0], fx.Node) else None
    return known if isinstance(known, Channels | Grid) else None
