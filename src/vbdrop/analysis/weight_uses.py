"""How often each weight is used per example: the factor between weights and multiply-adds."""

import math

from torch import fx

from vbdrop.analysis.graph import Traced, arguments_of, size_of
from vbdrop.analysis.rules.products import CONVOLUTIONS, MATRIX_PRODUCTS

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def positions(traced: Traced) -> dict[str, int]:
    """The number of uses per example of every weight that the graph multiplies with.

    A convolution uses each weight once for every position of its output (transposed: of its input), a linear layer
    once for every vector that it maps, a recurrent layer once per step. An embedding lookup multiplies
    nothing. Products between activations, as in attention, have no weights and are not counted.

    Args:
        traced: The graph.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from vbdrop.analysis.graph import trace
        >>> positions(trace(nn.Conv2d(1, 2, 3).eval(), (torch.zeros(4, 1, 8, 8),)))
        {'weight': 36}
    """
    counts: dict[str, int] = {}
    for node in traced.graph.nodes:
        for name, count in _of_node(traced, node):
            counts[name] = counts.get(name, 0) + count
    return counts


def _of_node(traced: Traced, node: fx.Node) -> list[tuple[str, int]]:
    operation = str(node.target).removeprefix("aten.").partition(".")[0]
    if operation == "linear" or operation in CONVOLUTIONS:
        call = arguments_of(node)
        transposed = "transpose" in operation
        source, weight = call["input"] if transposed else node, size_of(call["weight"])
        channels = weight[0]  # the weight's first axis indexes the channels of that same tensor
        count = math.prod(size_of(source)) // (channels * traced.batch)
        return [(traced.names[call["weight"]], max(1, count))] if call["weight"] in traced.names else []
    tensors = [source for source in node.all_input_nodes if source in traced.names]
    if operation in MATRIX_PRODUCTS:
        count = math.prod(size_of(node)[:-1]) // traced.batch
        return [(traced.names[tensor], max(1, count)) for tensor in tensors if len(size_of(tensor)) > 1]
    if operation in RECURRENT:
        steps = math.prod(size_of(node.all_input_nodes[0])[:-1]) // traced.batch
        return [(traced.names[tensor], max(1, steps)) for tensor in tensors if len(size_of(tensor)) > 1]
    if operation == "embedding":
        return [(traced.names[tensor], 0) for tensor in tensors]
    return []
