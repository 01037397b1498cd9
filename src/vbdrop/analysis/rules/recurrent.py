"""Recurrent layers: a hidden unit is removed with its rows in every gate and its column wherever it is read.

Every matrix of a layer and direction is a separate product. Its rows index the hidden units once for each gate, so the
same units are repeated; a unit is needed if a needed unit reads it in the next step, or if a later operation does.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from vbdrop._torch_compat import flat_weight_names, has_forward_hooks
from vbdrop.analysis.channel_facts import ChannelFacts, Facts, Follower, ProductSite, RecurrentSite
from vbdrop.analysis.channels import Channels, Stack
from vbdrop.analysis.graph import arguments_of, size_of
from vbdrop.analysis.layer_shapes import owner
from vbdrop.analysis.rules.movement import move
from vbdrop.analysis.rules.products import entering, tie
from vbdrop.layers.companions import companion
from vbdrop.layers.unequal_recurrent import EQUAL, UNEQUAL

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""The operation -> the number of row blocks in its weights."""

CANDIDATE = {"lstm": 2, "gru": 2, "rnn_tanh": 0, "rnn_relu": 0}
"""The row block that computes the new values: if it is zero, a state that starts at zero stays zero."""


def recurrent(facts: ChannelFacts, node: fx.Node) -> Facts:
    """Follow the hidden units of all layers and directions."""
    call = arguments_of(node)
    names = _own_names(facts, node, call)
    if isinstance(names, str):
        facts.keep(node, names)
        return None
    operation = str(node.target.overloadpacket.__name__)  # type: ignore[union-attr]
    directions, cells = 1 + int(call["bidirectional"]), list(_cells(call, names))
    below = entering(facts, call["input"], 2)
    hidden, leaving = list[Channels](), list[Channels]()
    for layer in range(call["num_layers"]):
        for own in cells[layer * directions : (layer + 1) * directions]:
            units, seen = _cell(facts, node, operation, own, below)
            hidden.append(units)
            leaving.append(seen)
        below = _joined(leaving[-directions:])
    paths = {owner(name) for name in names}
    facts.recurrent[node] = RecurrentSite(paths.pop(), call["input"], hidden, leaving, _whole(facts, names))
    states = [_stacked(leaving), _stacked(hidden)] if operation == "lstm" else [_stacked(leaving)]
    return [below, *states]


def select(facts: ChannelFacts, node: fx.Node) -> Facts:
    """One layer and direction of the states; for any other tensor, a slice."""
    call = arguments_of(node)
    known = facts.by_node.get(call["self"])
    if not isinstance(known, Stack):
        return move(facts, node)
    if call["dim"] % len(size_of(call["self"])) != 0 or not isinstance(call["index"], int):
        return None
    facts.unstacked.add(node)
    return known.parts[call["index"]]


def _own_names(facts: ChannelFacts, node: fx.Node, call: dict[str, Any]) -> list[str] | str:
    """The names of all weights and biases, if they belong to one module that can be made smaller; or why not."""
    if "params" not in call or "batch_sizes" in call:
        return f"{node.target} reads every channel"
    names = [facts.name(parameter) for parameter in call["params"]]
    found = [name for name in names if name is not None]
    if len(found) < len(names):
        return "its weight is computed in the forward"
    modules = {id(m): m for name in found for alias in facts.aliases(name) for m in [_module(facts, alias)]}
    if len(modules) != 1 or type(next(iter(modules.values()))) not in (*UNEQUAL, *EQUAL):
        return "its weights do not belong to one torch recurrent layer"
    states = call["hx"] if isinstance(call["hx"], list | tuple) else [call["hx"]]
    zeros = [_initial(facts, node, state) for state in states]
    if not all(zeros):
        return "its initial states are given, with all units"
    facts.initial_states.update(zero for found_zeros in zeros for zero in found_zeros)
    return found


def _module(facts: ChannelFacts, name: str) -> nn.Module:
    return facts.model.get_submodule(owner(name))


def _initial(facts: ChannelFacts, node: fx.Node, state: fx.Node) -> list[fx.Node]:
    """The operations that create a zero state inside the layer itself; empty if it comes from elsewhere."""
    chain = [state]
    while chain[-1].target is torch.ops.aten.unsqueeze.default:
        chain.append(chain[-1].all_input_nodes[0])
    own = all(facts.module_path(each) == facts.module_path(node) for each in chain)
    return chain if own and chain[-1].target is torch.ops.aten.zeros.default else []


def _cells(call: dict[str, Any], names: list[str]) -> Iterator[list[str]]:
    """The names of the tensors of each layer and direction."""
    each = len(names) // (call["num_layers"] * (1 + int(call["bidirectional"])))
    yield from (names[start : start + each] for start in range(0, len(names), each))


def _whole(facts: ChannelFacts, names: list[str]) -> bool:
    """Whether a module has exactly these tensors, so that its call is this operation."""
    module, path = _module(facts, names[0]), owner(names[0])
    if not path or not isinstance(module, nn.RNNBase) or type(module) not in UNEQUAL or has_forward_hooks(module):
        return False
    return names == [f"{path}.{name}" for name in flat_weight_names(module)]


def _cell(
    facts: ChannelFacts, node: fx.Node, operation: str, names: list[str], below: Channels
) -> tuple[Channels, Channels]:
    """The hidden units of one layer and direction, and its output units: fewer if they are projected."""
    weights = [name for name in names if facts.dims(name) > 1]
    tensors = {name: facts.named(name) for name in names}
    blocks, rows = GATES[operation], len(tensors[weights[0]])
    units = facts.units.new(rows // blocks)
    zero = _stays_zero(operation, [tensors[name] for name in names if name not in weights[2:]], blocks)
    hidden = Channels.varying(2, units).with_values(zero, torch.zeros(len(units)))
    leaving = hidden
    if len(weights) > 2:
        projected = ~(tensors[weights[2]] != 0).any(1)
        leaving = Channels.varying(2, facts.units.new(len(projected)))
        leaving = leaving.with_values(projected, torch.zeros(len(projected)))
        facts.projections.append((node, hidden, leaving))
    gates = Channels.varying(2, units.repeat(blocks))
    sides = [(below, gates), (leaving, gates), (hidden, leaving)]
    for name, (inputs, outputs) in zip(weights, sides, strict=False):
        total = tensors[name].unsqueeze(0)
        bias = own if name == weights[0] and (own := companion(name, "bias")) in tensors else None
        product = ProductSite(
            *(node, node, name, bias, inputs, outputs, False, bias is not None, bias is not None, total != 0, total),
            selects=False,
        )
        tie(facts, product)
        facts.products.append(product)
    for name in names:
        if name not in weights:
            facts.tie_tensor(name, 0, gates.units)
            facts.followers.append(Follower(node, name, 0, gates.units))
    return hidden, leaving


def _stays_zero(operation: str, tensors: list[Tensor], blocks: int) -> Tensor:
    """The units that are always zero: all weights and biases of the block that computes new values are zero."""
    candidates = [tensor.view(blocks, -1, *tensor.shape[1:])[CANDIDATE[operation]] for tensor in tensors]
    rows = [candidate.view(len(candidate), -1) for candidate in candidates]
    return ~(torch.cat(rows, 1) != 0).any(1)


def _joined(parts: list[Channels]) -> Channels:
    fields = ([getattr(part, name) for part in parts] for name in ("units", "known", "value"))
    return Channels(2, *(torch.cat(field) for field in fields))


def _stacked(parts: list[Channels]) -> Channels | Stack:
    """The states as torch stacks them; a single state has channels like any other tensor."""
    return parts[0] if len(parts) == 1 else Stack([part.at(1) for part in parts])
