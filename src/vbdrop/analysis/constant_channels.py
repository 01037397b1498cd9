"""The forward pass over the graph: which channels are constant, and which channels form one unit."""

import operator
from itertools import groupby
from typing import Any, TypeVar

from torch import fx, nn

from vbdrop._torch_compat import HigherOrderOperator, OpOverload
from vbdrop.analysis.channel_facts import ChannelFacts, Facts
from vbdrop.analysis.channels import Channels, Grid, Stack
from vbdrop.analysis.graph import Traced, is_tensor
from vbdrop.analysis.head_blocks import settle, stays
from vbdrop.analysis.layer_shapes import owner, shape_of
from vbdrop.analysis.rules import rule_of

AnyFacts = TypeVar("AnyFacts", bound=ChannelFacts)

WITHOUT_CHANNELS = ("sym_size", "_assert")
"""Operations that do not read their input's values, only its batch size or nothing at all."""


def propagate(
    traced: Traced,
    model: nn.Module,
    *,
    rewrite: bool = True,
    frozen_shapes: bool = False,
    split_heads: bool = False,
    kind: type[ChannelFacts] = ChannelFacts,
) -> ChannelFacts:
    """Follow the channels of every value through the graph.

    A unit whose incoming weights are all zero is the constant ``f(bias)`` and stays constant through activations,
    normalisation, pooling and flattening. An operation without a rule keeps everything that enters it.

    Args:
        traced: The graph.
        model: The traced model, or one of the same structure with other weights.
        rewrite: Whether the forward may be replaced.
        frozen_shapes: Whether sizes that are hard-coded in the forward must stay.
        split_heads: Whether the features of a head may be removed one by one.
        kind: The class that collects the facts.

    Example:
        >>> import torch
        >>> from vbdrop.analysis.graph import trace
        >>> layer = nn.Linear(2, 3).eval()
        >>> with torch.no_grad():
        ...     _ = layer.weight[1].zero_(), layer.bias.fill_(5.0)
        >>> facts = propagate(trace(layer, (torch.zeros(4, 2),)), layer)
        >>> facts.products[0].outputs.value
        tensor([0., 5., 0.], dtype=torch.float64)
    """
    return fill(kind(traced, model, rewrite=rewrite, frozen_shapes=frozen_shapes, split_heads=split_heads))


def fill(facts: AnyFacts) -> AnyFacts:
    """Run the forward pass of `propagate` on facts that are still empty.

    Args:
        facts: The facts to fill.

    Returns:
        The same object.
    """
    traced = facts.traced
    for node in traced.graph.nodes:
        if node.op == "call_function":
            found = _facts_of(facts, node)
            facts.by_node[node] = facts.through(node) if found is None else found
    for result in [*traced.results, *traced.effects]:
        channels = facts.channels(result)
        if channels is not None:
            facts.pin(channels)
    if not facts.rewrite:
        for result in traced.unread:
            channels = facts.channels(result)
            if channels is not None:
                facts.pinned.append(channels.units[~channels.known])
    _keep_stacks(facts)
    _set_aside(facts)
    _freeze(facts)
    facts.even = settle(facts)
    _decide_grids(facts)
    facts.settled = True
    return facts


def _facts_of(facts: ChannelFacts, node: fx.Node) -> Facts:
    if node.target is operator.getitem:
        return _item(facts, *node.args)
    if isinstance(node.target, HigherOrderOperator):
        facts.keep(node, f"the operation {node.target} is not known")
        return None
    if not isinstance(node.target, OpOverload):
        return None  # arithmetic on sizes
    name = node.target.overloadpacket.__name__
    if not is_tensor(node) and name.startswith(WITHOUT_CHANNELS):
        return None
    rule = rule_of(node.target)
    if rule is None:
        facts.keep(node, f"the operation {node.target} is not known")
        return None
    return rule(facts, node)


def _keep_stacks(facts: ChannelFacts) -> None:
    """Keep the units of all layers and directions, unless their states are only read by selecting one of them."""
    returned = {*facts.traced.results, *facts.traced.effects, *facts.traced.unread}
    for node, known in facts.by_node.items():
        if isinstance(known, Stack) and (node in returned or not facts.unstacked.issuperset(node.users)):
            for part in known.parts:
                facts.pin(part)
                facts.kept_for.append((part.units, "the states of all layers and directions are read together"))


def _set_aside(facts: ChannelFacts) -> None:
    """Skip weights that are used in two layouts, where one axis indexes different units.

    A layout is an orientation and a number of groups; the layout of the module that holds the weight counts too.
    """
    by_weight = groupby(sorted(facts.products, key=lambda p: p.weight), key=lambda p: p.weight)
    for weight, places in [(weight, list(group)) for weight, group in by_weight]:
        modules = [facts.model.get_submodule(owner(alias)) for alias in facts.aliases(weight)]
        shapes = [(module, shape) for module in modules if (shape := shape_of(module)) and shape.inputs is not None]
        ways = {(shape.inputs_first, getattr(module, "groups", 1)) for module, shape in shapes}
        if len(ways | {(place.transposed, place.groups) for place in places}) == 1:
            continue
        for place in places:
            facts.products.remove(place)
            facts.keep(place.node, "its weight is also used in another way: transposed, or with other groups")
            facts.pin(place.inputs)
            facts.pin(place.outputs)


def _freeze(facts: ChannelFacts) -> None:
    """Find the parameters that are also used in unknown ways, and keep the channels along all of their axes."""
    followed = {(place.node, name) for place in facts.products for name in (place.weight, place.bias)}
    followed |= {(follower.node, follower.name) for follower in facts.followers}
    for node, name in facts.traced.names.items():
        if any((user, name) not in followed for user in node.users):
            facts.frozen.add(name)
    for product in facts.products:
        if facts.frozen & {product.weight, product.bias}:
            facts.pin(product.inputs)
            facts.pin(product.outputs)
    facts.pinned += [follower.units for follower in facts.followers if follower.name in facts.frozen]


def _decide_grids(facts: ChannelFacts) -> None:
    """Turn every grid into channels on one axis: the one along which other operations have already tied its units.

    Heads whose features may be removed one by one stay a grid.
    """

    def decided(known: Channels | Grid | Stack | None) -> Channels | Grid | Stack | None:
        if not isinstance(known, Grid) or (facts.blocks and stays(facts.blocks, known)):
            return known
        fitting = (axis for axis in known.axes if known.fits(axis, facts.units))
        return known.along(next(fitting, known.longest), facts.units)

    for node, known in facts.by_node.items():
        facts.by_node[node] = [decided(part) for part in known] if isinstance(known, list) else decided(known)


def _item(facts: ChannelFacts, source: Any, index: Any) -> Channels | Grid | Stack | None:  # noqa: ANN401 -- arguments of a node
    known = facts.by_node.get(source)
    return known[index] if isinstance(known, list) else None
