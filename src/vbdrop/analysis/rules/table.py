"""The table of operations whose effect on channels is known."""

from collections.abc import Callable

from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts, Facts
from vbdrop.analysis.rules import (
    attention,
    bilinear,
    channelwise,
    joins,
    mixing,
    movement,
    pointwise,
    pooling,
    products,
    rearrangements,
    recurrent,
    reductions,
)

Rule = Callable[[ChannelFacts, fx.Node], Facts]

RULES: dict[str, Rule] = {
    "linear": products.linear,
    **dict.fromkeys(products.CONVOLUTIONS, products.convolution),
    **dict.fromkeys(products.MATRIX_PRODUCTS, products.matrix_product),
    "einsum": products.einsum,
    "embedding": products.embedding,
    "bilinear": bilinear.bilinear,
    **dict.fromkeys(recurrent.GATES, recurrent.recurrent),
    "_native_batch_norm_legit_no_training": channelwise.batch_norm,
    "group_norm": reductions.group_norm,
    "instance_norm": channelwise.instance_norm,
    "prelu": channelwise.prelu,
    **dict.fromkeys(("layer_norm", "rms_norm"), reductions.norm_over_channels),
    "var_mean": reductions.variance,
    **dict.fromkeys(pointwise.POINTWISE, pointwise.pointwise),
    **dict.fromkeys(pointwise.COMPARISONS, pointwise.compare),
    **dict.fromkeys(pointwise.IDENTITIES, pointwise.identity),
    **dict.fromkeys(pointwise.NEW_TENSORS, pointwise.new_tensor),
    **dict.fromkeys(movement.MOVEMENTS, movement.move),
    "select": recurrent.select,
    **dict.fromkeys(pooling.PRESERVING, pooling.preserve),
    **dict.fromkeys(pooling.WITH_INDICES, pooling.preserve_first),
    **dict.fromkeys(pooling.AVERAGES, pooling.average),
    **dict.fromkeys(pooling.PADS, pooling.pad),
    **dict.fromkeys(pooling.REDUCTIONS, pooling.reduce),
    **dict.fromkeys(joins.ARITHMETIC, joins.combine),
    **dict.fromkeys((*joins.OF_THREE, *joins.SELECTIONS), joins.combine),
    "cat": joins.concatenate,
    "stack": joins.stack,
    "slice_scatter": joins.overwrite,
    "copy": joins.copy,
    "glu": rearrangements.glu,
    "pixel_shuffle": rearrangements.pixel_shuffle,
    "pixel_unshuffle": rearrangements.pixel_unshuffle,
    "channel_shuffle": rearrangements.channel_shuffle,
    "scaled_dot_product_attention": attention.attend,
    **dict.fromkeys(attention.SOFTMAX, attention.softmax),
    **dict.fromkeys(mixing.MIXING, mixing.mix),
}
"""The name of an ATen operation -> the rule that carries channels through it."""
