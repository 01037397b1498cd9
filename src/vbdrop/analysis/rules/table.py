"""The table of operations whose effect on channels is known."""

from collections.abc import Callable

from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts, Facts
from vbdrop.analysis.rules import channelwise, joins, mixing, movement, pointwise, pooling, products

Rule = Callable[[ChannelFacts, fx.Node], Facts]

RULES: dict[str, Rule] = {
    "linear": products.linear,
    **dict.fromkeys(products.CONVOLUTIONS, products.convolution),
    "embedding": products.embedding,
    "_native_batch_norm_legit_no_training": channelwise.batch_norm,
    "prelu": channelwise.prelu,
    **dict.fromkeys(pointwise.POINTWISE, pointwise.pointwise),
    **dict.fromkeys(pointwise.IDENTITIES, pointwise.identity),
    **dict.fromkeys(movement.MOVEMENTS, movement.move),
    **dict.fromkeys(pooling.PRESERVING, pooling.preserve),
    **dict.fromkeys(pooling.WITH_INDICES, pooling.preserve_first),
    **dict.fromkeys(pooling.AVERAGES, pooling.average),
    **dict.fromkeys(pooling.PADS, pooling.pad),
    **dict.fromkeys(pooling.REDUCTIONS, pooling.reduce),
    **dict.fromkeys(joins.ARITHMETIC, joins.combine),
    "cat": joins.concatenate,
    **dict.fromkeys(mixing.MIXING, mixing.mix),
}
"""The name of an ATen operation -> the rule that carries channels through it."""
