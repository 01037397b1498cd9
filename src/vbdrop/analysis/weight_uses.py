"""How often each weight is used per example: the factor between weights and multiply-adds."""

import math

import torch
from torch import fx

from vbdrop.analysis.graph import Traced, arguments_of, size_of
from vbdrop.analysis.rules.products import CONVOLUTIONS, MATRIX_PRODUCTS

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")

ATTENTION = "scaled_dot_product_attention"

NO_PRODUCTS = ("add", "sub", "rsub", "where", "cat", "stack", "layer_norm")
"""Operations that take a parameter but do no multiplications that are counted."""


def positions(traced: Traced) -> dict[str, int]:
    """The number of uses per example of every weight that the graph multiplies by.

    A convolution uses each weight once for every position of its output (transposed: of its input), a linear layer
    once for every vector that it maps, a recurrent layer once per step. An embedding lookup, or a parameter that is
    only added, counts as 0. Products between activations, as in attention, have no weights and are not counted.

    Args:
        traced: The graph.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from vbdrop.analysis.graph import trace
        >>> positions(trace(nn.Conv2d(1, 2, 3).eval(), (torch.zeros(4, 1, 8, 8),)))
        {'weight': 36}
    """
    batch, counts = _batch(traced), dict[str, int]()
    for node in traced.graph.nodes:
        for name, count in _of_node(traced, node, batch):
            counts[name] = counts.get(name, 0) + count
    added = _only_added(traced)
    for node, name in traced.names.items():
        if name not in counts and len(size_of(node)) > 1 and node in added:
            counts[name] = 0
    return counts


def _from_inputs(traced: Traced) -> set[fx.Node]:
    """The tensors that are computed from an input of the model, and the operations that return several of them."""
    found = set[fx.Node]()
    for node in traced.graph.nodes:
        is_input = node.op == "placeholder" and node not in traced.names
        is_size = not isinstance(node.meta.get("val"), torch.Tensor | tuple | list)
        if not is_size and (is_input or not found.isdisjoint(node.all_input_nodes)):
            found.add(node)
    return found


def _only_added(traced: Traced) -> set[fx.Node]:
    """The model's tensors that are combined with tensors from the inputs only by sums and similar operations."""
    from_inputs, found = _from_inputs(traced), set[fx.Node]()
    for node in reversed(traced.graph.nodes):
        uses = [
            _operation(user) in NO_PRODUCTS if user in from_inputs else user in found
            for user in node.users
            if user.op == "call_function"
        ]
        if uses and all(uses):  # empty for a second name of a tied weight
            found.add(node)
    return found


def _operation(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").partition(".")[0]


def _batch(traced: Traced) -> int:
    """The number of examples, even if the first axis of the inputs is not the batch."""
    for node in traced.graph.nodes:
        operation = _operation(node)
        if operation in CONVOLUTIONS:
            call = arguments_of(node)
            if len(size_of(call["input"])) < len(size_of(call["weight"])):
                return 1  # one image, not a batch
        if operation in RECURRENT:
            call = arguments_of(node)
            first, second = call["input"].meta["val"].shape[:2]
            steps, examples = (second, first) if call["batch_first"] else (first, second)
            if isinstance(steps, torch.SymInt) and isinstance(examples, int):
                return examples  # the free axis of the trace runs over steps
        if operation == ATTENTION:
            examples, *_, steps, _ = arguments_of(node)["query"].meta["val"].shape
            if isinstance(steps, torch.SymInt) and isinstance(examples, int):
                return examples  # sequences with the steps first
    return traced.batch


def _of_node(traced: Traced, node: fx.Node, batch: int) -> list[tuple[str, int]]:
    operation = _operation(node)
    if operation == "linear" or operation in CONVOLUTIONS:
        call = arguments_of(node)
        transposed = "transpose" in operation
        source, weight = call["input"] if transposed else node, size_of(call["weight"])
        channels = weight[0]  # the weight's first axis indexes the channels of that same tensor
        count = math.prod(size_of(source)) // (channels * batch)
        return [(traced.names[call["weight"]], max(1, count))] if call["weight"] in traced.names else []
    if operation in MATRIX_PRODUCTS:
        call = arguments_of(node)
        factors = [call[name] for name in ("mat1", "self", "mat2", "other") if name in call][-2:]
        products = math.prod(size_of(node)) * size_of(factors[0])[-1]
        weights = [factor for factor in factors if factor in traced.names and len(size_of(factor)) > 1]
        return [(traced.names[w], max(1, products // (math.prod(size_of(w)) * batch))) for w in weights]
    tensors = [source for source in node.all_input_nodes if source in traced.names]
    if operation in RECURRENT:
        steps = math.prod(size_of(node.all_input_nodes[0])[:-1]) // batch
        return [(traced.names[tensor], max(1, steps)) for tensor in tensors if len(size_of(tensor)) > 1]
    if operation == "embedding":
        return [(traced.names[tensor], 0) for tensor in tensors]
    return []
