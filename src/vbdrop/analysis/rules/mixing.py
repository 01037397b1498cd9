"""Operations whose outputs all depend on every channel: the inputs are kept, and the outputs are not followed."""

from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts

MIXING = ("native_layer_norm", "argmax", "argmin", "max", "min", "topk", "cumsum")


def mix(facts: ChannelFacts, node: fx.Node) -> None:
    """Keep all input channels."""
    facts.keep(node, f"{node.target} reads every channel", report=False)
