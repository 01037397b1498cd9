"""Parameters that are combined elementwise with a value: `x * gamma`, position embeddings, attention biases."""

from typing import Any

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import ChannelFacts, Follower
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import size_of
from vbdrop.analysis.rules.movement import MOVEMENTS, constant_arguments, numbered, run, varying_axes
from vbdrop.analysis.rules.pointwise import IDENTITIES


def parameter_channels(facts: ChannelFacts, node: fx.Node, term: fx.Node, axis: int) -> Channels | None:
    """The channels of a term that is a parameter, possibly moved, if exactly one axis of the parameter indexes them.

    The parameter then shrinks with them.

    Args:
        facts: The forward pass.
        node: The operation.
        term: One of its arguments.
        axis: The axis of the term on which the channels lie.
    """
    chain = _chain(facts, term)
    if chain is None:
        return None
    parameter, moves = chain
    name = facts.traced.names[parameter]
    if name in facts.traced.constants or facts.why_fixed(parameter) is not None:
        return None
    sizes = size_of(parameter)
    steps = {own: _steps(facts, numbered(sizes, (own,)), moves) for own, size in enumerate(sizes) if size > 1}
    found = [own for own, numbers in steps.items() if numbers is None or axis in varying_axes(numbers[-1])]
    numbers = steps[found[0]] if len(found) == 1 else None
    if numbers is None or varying_axes(numbers[-1]) != (axis,) or any(len(varying_axes(n)) != 1 for n in numbers):
        return None
    units, values = facts.units_along(name, found[0]), facts.tensor(parameter)
    channels = Channels.varying(found[0], units)
    if values is not None and values.numel() == len(units):
        channels = channels.with_values(torch.ones(len(units), dtype=torch.bool), values.flatten())
    facts.followers.append(Follower(moves[0] if moves else node, name, found[0], units))
    for move, places in zip(moves, numbers[1:], strict=True):
        facts.by_node[move] = channels.take(*_along(places))
    return channels.take(*_along(numbers[-1]))


def joined_parameters(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """The channels of a vector of concatenated parameters, such as the biases of queries, keys and values.

    Args:
        facts: The forward pass.
        node: A node; if it is not such a vector, None is returned.
    """
    if getattr(getattr(node.target, "overloadpacket", None), "__name__", None) != "cat":
        return None
    terms: list[fx.Node] = list(node.args[0])  # type: ignore[arg-type]
    values = [facts.tensor(term) for term in terms]
    if any(value is None or value.dim() != 1 for value in values) or facts.why_fixed(*terms) is not None:
        return None
    whole = [facts.traced.names[term] for term in terms]
    parts = [facts.units_along(name, 0) for name in whole]
    facts.followers += [Follower(node, name, 0, units) for name, units in zip(whole, parts, strict=True)]
    channels = Channels.varying(0, torch.cat(parts))
    value = torch.cat([facts.named(name) for name in whole])
    facts.by_node[node] = channels.with_values(torch.ones_like(channels.known), value)
    return channels.with_values(torch.ones_like(channels.known), value)


def _along(numbers: Tensor) -> tuple[Tensor, int]:
    """The indices along the one axis on which they differ, and that axis."""
    (axis,) = varying_axes(numbers)
    return numbers[tuple(slice(None) if a == axis else 0 for a in range(numbers.dim()))], axis


def _chain(facts: ChannelFacts, term: fx.Node) -> tuple[fx.Node, list[fx.Node]] | None:
    """The parameter of which a term is a moved copy, and the moves in order; None if a move has another user."""
    moves: list[fx.Node] = []
    while facts.name(term) is None:
        name = getattr(getattr(term.target, "overloadpacket", None), "__name__", None)
        if (name not in MOVEMENTS and name not in IDENTITIES) or len(term.users) != 1:
            return None
        moves.insert(0, term)
        term = term.all_input_nodes[0]
    return term, moves


def _steps(facts: ChannelFacts, numbers: Tensor, moves: list[fx.Node]) -> list[Tensor] | None:
    """The indices of the channels before the first move and after each move."""
    steps = [numbers]
    for move in moves:
        is_move = move.target.overloadpacket.__name__ in MOVEMENTS  # type: ignore[union-attr]
        arguments = constant_arguments(facts, move) if is_move else ()
        if arguments is None:
            return None
        moved: Any = run(move, steps[-1], arguments) if is_move else steps[-1]
        if not isinstance(moved, Tensor):
            return None
        steps.append(moved)
    return steps
