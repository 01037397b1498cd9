"""Operations that read every channel to write any: all that enters stays, and what leaves is not followed."""

from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts

MIXING = ("native_layer_norm", "argmax", "argmin", "max", "min", "topk", "cumsum")


def mix(facts: ChannelFacts, node: fx.Node) -> None:
    """Keep everything that enters."""
    facts.keep(node, f"{node.target} reads every channel", report=False)
