"""Values that the forward makes the same for all channels, such as a mask of zeros with one copy for each head."""

from torch import fx

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import arguments_of, is_tensor, size_of
from vbdrop.analysis.rules.pointwise import IDENTITIES, NEW_TENSORS

FILLED = ("zeros", "ones", "full", *NEW_TENSORS)
"""Operations that make a tensor with one value everywhere."""

ELEMENTWISE = ("where", "masked_fill", "add", "sub", "mul", *IDENTITIES)
"""Operations whose result is the same for all channels if their arguments are."""


def repeated_channels(facts: ChannelFacts, term: fx.Node, axis: int) -> Channels | None:
    """The channels of a term that has equal slices along an axis, whatever the inputs are; None for any other.

    It was made with a number of slices, so any of them can be removed, as the writer of the new forward does.

    Args:
        facts: The forward pass.
        term: One of the tensors that an operation gets.
        axis: The axis of the term on which the channels lie.
    """
    found: dict[fx.Node, int] = {}
    if facts.frozen_shapes or not _repeats(term, axis, found):
        return None
    for node in found:
        already_read = any(user in facts.by_node and user not in found for user in node.users)
        if already_read or facts.by_node.get(node) is not None:
            return None
    units = facts.units.new(size_of(term)[axis])
    for node, own_axis in found.items():
        facts.by_node[node] = Channels.varying(own_axis, units)
    return Channels.varying(axis, units)


def _repeats(node: fx.Node, axis: int, found: dict[fx.Node, int]) -> bool:
    """Whether a value has equal slices along an axis; if so, it and those that it is made of are found."""
    if node in found:
        return found[node] == axis
    found[node] = axis
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", None)
    if name in FILLED:
        return type(arguments_of(node)["size"][axis]) is int
    if name == "expand":
        call = arguments_of(node)
        return type(call["size"][axis]) is int and not _has_all(call["self"], node, axis)
    if name not in ELEMENTWISE:
        return False
    terms = [term for term in node.all_input_nodes if is_tensor(term) and _has_all(term, node, axis)]
    return bool(terms) and all(_repeats(term, axis - len(size_of(node)) + len(size_of(term)), found) for term in terms)


def _has_all(term: fx.Node, node: fx.Node, axis: int) -> bool:
    """Whether a term has every slice of the result along an axis, instead of one for all of them."""
    own_axis = axis - len(size_of(node)) + len(size_of(term))
    return own_axis >= 0 and size_of(term)[own_axis] == size_of(node)[axis]
