"""Forward over the graph: which channels are constants, and which are one unit."""

import operator
from itertools import groupby
from typing import Any

from torch import fx, nn
from torch._ops import OpOverload

from vbdrop.compression.channels import Channels
from vbdrop.compression.flow import Facts, Flow
from vbdrop.compression.graph import Traced, is_tensor
from vbdrop.compression.layers import owner
from vbdrop.compression.rules import RULES

WITHOUT_CHANNELS = ("sym_size", "_assert")
"""Operations that read no value of their input, only its batch size or nothing at all."""


def propagate(traced: Traced, model: nn.Module, *, rewrite: bool = True, frozen_shapes: bool = False) -> Flow:
    """Follow the channels of every value through the graph.

    A unit whose incoming weights are all zero is the constant ``f(bias)``, and stays one through activations,
    normalisation, pooling and flattening. An operation without a rule keeps everything that enters it.

    Args:
        traced: The graph.
        model: The traced model, or one of the same structure with other weights.
        rewrite: Whether the forward may be replaced.
        frozen_shapes: Whether sizes that the forward spells out must stay.

    Example:
        >>> import torch
        >>> from vbdrop.compression.graph import trace
        >>> layer = nn.Linear(2, 3).eval()
        >>> with torch.no_grad():
        ...     _ = layer.weight[1].zero_(), layer.bias.fill_(5.0)
        >>> flow = propagate(trace(layer, (torch.zeros(4, 2),)), layer)
        >>> flow.products[0].outputs.value
        tensor([0., 5., 0.], dtype=torch.float64)
    """
    flow = Flow(traced, model, rewrite=rewrite, frozen_shapes=frozen_shapes)
    for node in traced.graph.nodes:
        if node.op == "call_function":
            flow.facts[node] = _facts_of(flow, node)
    for result in [*traced.results, *traced.effects]:
        channels = flow.channels(result)
        if channels is not None:
            flow.pin(channels)
    _set_aside(flow)
    _freeze(flow)
    return flow


def _facts_of(flow: Flow, node: fx.Node) -> Facts:
    if node.target is operator.getitem:
        return _item(flow, *node.args)
    if not isinstance(node.target, OpOverload):
        return None  # arithmetic on sizes
    name = node.target.overloadpacket.__name__
    if not is_tensor(node) and name.startswith(WITHOUT_CHANNELS):
        return None
    rule = RULES.get(name) if node.target.namespace == "aten" else None
    if rule is None:
        flow.keep(node, f"the operation {node.target} is not known")
        return None
    return rule(flow, node)


def _set_aside(flow: Flow) -> None:
    """Take out the products whose weights are used in two ways: an axis of theirs then runs over other units in each.

    A way is an orientation and a number of groups; that of the module that holds the weight counts, too.
    """
    by_weight = groupby(sorted(flow.products, key=lambda p: p.weight), key=lambda p: p.weight)
    for weight, places in [(weight, list(group)) for weight, group in by_weight]:
        modules = [flow.model.get_submodule(owner(alias)) for alias in flow.aliases(weight)]
        ways = {(getattr(module, "transposed", False), getattr(module, "groups", 1)) for module in modules}
        if len(ways | {(place.transposed, place.groups) for place in places}) == 1:
            continue
        for place in places:
            flow.products.remove(place)
            flow.keep(place.node, "its weight is also used in another way: transposed, or with other groups")
            flow.pin(place.inputs)
            flow.pin(place.outputs)


def _freeze(flow: Flow) -> None:
    """Find the parameters that are used in other ways, too, and keep the channels along all of their axes."""
    followed = {(place.node, name) for place in flow.products for name in (place.weight, place.bias)}
    followed |= {(follower.node, follower.name) for follower in flow.followers}
    for node, name in flow.traced.names.items():
        if any((user, name) not in followed for user in node.users):
            flow.frozen.add(name)
    for product in flow.products:
        if flow.frozen & {product.weight, product.bias}:
            flow.pin(product.inputs)
            flow.pin(product.outputs)
    flow.pinned += [follower.units for follower in flow.followers if follower.name in flow.frozen]


def _item(flow: Flow, source: Any, index: Any) -> Channels | None:  # noqa: ANN401 -- arguments of a node
    facts = flow.facts.get(source)
    return facts[index] if isinstance(facts, list) else None
