"""Functions of one element: each channel stays what it is, and a constant goes through the function."""

from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.channels import Channels

POINTWISE = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish"),
    *("hardswish", "hardsigmoid", "hardtanh", "threshold"),
    *("sigmoid", "tanh", "softplus", "log_sigmoid", "erf", "sin", "cos"),
    *("abs", "neg", "sign", "exp", "expm1", "log1p", "square", "sqrt", "reciprocal", "floor", "ceil", "round"),
    *("clamp", "clamp_min", "clamp_max", "pow"),
)

IDENTITIES = ("clone", "alias", "detach", "contiguous", "dropout", "feature_dropout", "alpha_dropout", "_to_copy", "to")
"""What leaves a value as it is in eval mode; a cast keeps it up to its precision."""


def pointwise(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """Apply the operation itself to the constants."""
    source, *arguments = node.args
    channels = facts.channels(source)
    if channels is None or any(isinstance(argument, fx.Node) for argument in arguments):
        facts.keep(node, f"{node.target} takes a tensor where a number is expected")
        return None
    value = node.target(channels.value, *arguments, **node.kwargs)  # type: ignore[operator]  # an OpOverload
    return channels.with_values(channels.known, value)


def identity(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """The same channels, unless a cast to whole numbers cuts them."""
    if not node.meta["val"].dtype.is_floating_point:
        facts.keep(node, "it is cast to whole numbers")
        return None
    return facts.channels(node.args[0])
