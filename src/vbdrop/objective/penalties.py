"""Penalties on the weights themselves inside a loss, such as ``nll + 1e-4 * weight.square().sum()``."""

from collections.abc import Iterable, Iterator

from torch import Tensor
from torch.autograd.graph import Node

from vbdrop.objective.autograd_graph import walk

SUMS = {"Add", "Sub"}
"""If their result is a single number, each operand is a term of it."""

FACTORS = {"Mul", "Div", "Neg", "View", "Reshape", "Squeeze", "Unsqueeze", "ToCopy", "Clone", "Alias"}
"""With one operand that has a gradient, they leave a single number a term of the loss."""

OF_WEIGHTS = {
    *(
        "Abs",
        "Add",
        "Amax",
        "Cat",
        "Clone",
        "Div",
        "Exp",
        "ForeachNorm",
        "LinalgVectorNorm",
        "Log",
        "Max",
        "Mean",
        "Mul",
    ),
    *(
        "Neg",
        "Norm",
        "Permute",
        "Pow",
        "Reshape",
        "ReshapeAlias",
        "Sqrt",
        "Squeeze",
        "Stack",
        "Sub",
        "Sum",
        "T",
        "ToCopy",
    ),
    *("Transpose", "UnsafeView", "Unsqueeze", "View"),
}
"""The operations of penalties. None of them takes inputs without a gradient beside its edges, as an embedding does."""


def without_penalties(loss: Node, parameters: Iterable[Tensor]) -> list[Node]:
    """Split a loss into its terms, and leave out those that depend on parameters alone.

    A term that contains any constant tensor is kept, since the constant might be an input.

    Args:
        loss: The operation that made the loss, a single number.
        parameters: The parameters of the model.

    Returns:
        The operations that made the other terms.

    Example:
        >>> import torch
        >>> layer = torch.nn.Linear(2, 1)
        >>> loss = layer(torch.ones(3, 2)).exp().mean() + 0.1 * layer.weight.abs().sum()
        >>> [node.name() for node in without_penalties(loss.grad_fn, layer.parameters())]
        ['MeanBackward0']
    """
    own = {id(parameter) for parameter in parameters}
    return [term for term in _terms(loss) if not all(_is_of_weights(node, own) for node in walk([term]))]


def _terms(loss: Node) -> Iterator[Node]:
    stack = [loss]
    while stack:
        node = stack.pop()
        sources = [source for source, _ in node.next_functions if source is not None]
        if _operation(node) in SUMS or (_operation(node) in FACTORS and len(sources) == 1):
            stack += sources
        else:
            yield node


def _is_of_weights(node: Node, own: set[int]) -> bool:
    variable = getattr(node, "variable", None)
    if variable is not None:
        return id(variable) in own
    return _operation(node) in OF_WEIGHTS and all(source is not None for source, _ in node.next_functions)


def _operation(node: Node) -> str:
    return node.name().partition("Backward")[0]
