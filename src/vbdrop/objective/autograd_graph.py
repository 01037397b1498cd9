"""Walks over an autograd graph."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.autograd.graph import Node

from vbdrop._torch_compat import pytree


def starts(tree: Any) -> list[Node]:  # noqa: ANN401 -- any structure of tensors
    """The operations that made the tensors in a structure."""
    return [leaf.grad_fn for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.grad_fn is not None]


def walk(starts: Iterable[Node], ends: Iterable[Node] = ()) -> Iterator[Node]:
    """Every operation in the autograd graph between the starts and the ends; the ends are excluded.

    Example:
        >>> import torch
        >>> x = torch.ones(2, requires_grad=True)
        >>> [node.name() for node in walk([x.exp().sum().grad_fn])][:2]
        ['SumBackward0', 'ExpBackward0']
    """
    seen = set(ends)
    stack = [node for node in starts if node not in seen]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack += [source for source, _ in node.next_functions if source is not None]


def reads(nodes: Iterable[Node], parameters: Iterable[Tensor]) -> dict[int, set[Node]]:
    """The ``id`` of each parameter -> those of the operations that read it.

    Example:
        >>> import torch
        >>> x = torch.ones(2, requires_grad=True)
        >>> [[node.name() for node in found] for found in reads(walk([x.exp().sum().grad_fn]), [x]).values()]
        [['ExpBackward0']]
    """
    found: dict[int, set[Node]] = {id(parameter): set() for parameter in parameters}
    for node in nodes:
        for source, _ in node.next_functions:
            variable = getattr(source, "variable", None)
            if variable is not None and id(variable) in found:
                found[id(variable)].add(node)
    return found
