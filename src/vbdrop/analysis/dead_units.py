"""Units that no output depends on, as far as anyone can see, and the reason why they stay all the same."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import Traced, is_tensor, size_of
from vbdrop.analysis.layer_shapes import owner
from vbdrop.analysis.liveness import Liveness, carriers, find_live

LAYOUT = (
    "the groups of a convolution have equally many channels, no tensor is left without one, a recurrent layer has more "
    "hidden units than projections, and nothing is copied to save a few"
)
"""Why a unit stays whose values nothing reads."""


STRANDED = "they are constants that no bias behind them can take up, or are joined with channels that are not"
"""Why a constant stays."""


TIED = "they are tied to channels that are needed, or something reads them that cannot be made smaller"
"""Why a unit stays whose values have no effect, if nothing else is known."""


class HopefulFacts(ChannelFacts):
    """The forward pass of an analysis that takes an operation it cannot cut for one that treats each channel alone.

    What is dead by it is what would go if that operation could be made smaller.
    """

    def through(self, node: fx.Node) -> Channels | None:
        """The channels of the one input that has the shape of the result."""
        if not is_tensor(node):
            return None
        found = [(source, channels) for source in node.all_input_nodes if (channels := self.channels(source))]
        if len(found) != 1 or size_of(found[0][0]) != size_of(node):
            return None
        channels = found[0][1]
        return Channels.varying(channels.axis, channels.units)

    def keep(self, node: fx.Node, reason: str, *, report: bool = True) -> None:
        """Keep the channels that enter a node only where nothing is known of what leaves it."""
        if self.through(node) is None:
            super().keep(node, reason, report=report)


def live_at_best(traced: Traced, model: nn.Module) -> Liveness:
    """The units that stay if every operation that keeps its shape could lose channels.

    Args:
        traced: The graph.
        model: The traced model, or one of the same structure with other weights.
    """
    return find_live(propagate(traced, model, kind=HopefulFacts))


def why_dead_units_stay(
    best: Liveness, actual: Liveness, kept: Mapping[str, Any], unread: Mapping[str, Tensor] | None = None
) -> dict[str, str]:
    """For every weight that keeps outputs which are dead, how many they are and why.

    Args:
        best: What `live_at_best` gave.
        actual: The liveness of the plan.
        kept: Weight -> the indices of its outputs that the plan keeps, None for all.
        unread: Weight -> which of those were tried and found not to matter.

    Example:
        >>> from vbdrop.analysis.graph import trace
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Softmax(-1), nn.Linear(3, 1)).eval()
        >>> with torch.no_grad():
        ...     _ = model[2].weight[:, 1].zero_()
        >>> traced = trace(model, (torch.zeros(4, 2),))
        >>> actual = find_live(propagate(traced, model))
        >>> why_dead_units_stay(live_at_best(traced, model), actual, {"0.weight": None, "2.weight": None})
        {'0': '1 of 3 outputs is dead and stays: aten.softmax.int reads every channel'}
    """
    found, unread = {}, unread or {}
    for weight, uses in best.uses.items():
        tried = unread.get(weight)
        if weight not in kept or (tried is None and not any(place.node in best.reached for place in uses.places)):
            continue
        outputs = uses.first.outputs
        dead = ~best.live[best.root[outputs.units]] | _stranded(actual, weight, outputs)
        stays = torch.arange(len(outputs)) if kept[weight] is None else torch.tensor(kept[weight], dtype=torch.long)
        idle = dead[stays]
        if tried is not None and len(tried) == len(stays):
            idle = idle | _all_of_unit(tried, outputs.units[stays])
        dead = torch.zeros_like(dead).index_put((stays,), idle)
        if number := len(set(outputs.units[dead].tolist())):  # a unit of a recurrent layer has several rows
            reason = _reason(actual, weight, dead, tied=bool(best.live[best.root[outputs.units[dead]]].all()))
            verb = "is dead and stays" if number == 1 else "are dead and stay"
            found[owner(weight) or weight] = f"{number} of {len(set(outputs.units.tolist()))} outputs {verb}: {reason}"
    return found


def _all_of_unit(which: Tensor, units: Tensor) -> Tensor:
    """The rows of the units of which all rows are among some."""
    others = set(units[~which].tolist())
    return torch.tensor([unit not in others for unit in units.tolist()], dtype=torch.bool)


def _stranded(actual: Liveness, weight: str, outputs: Channels) -> Tensor:
    """The outputs that are constants, are not returned by the model, and carry no other constants."""
    traced, needed = actual.facts.traced, set[int]()
    for result in [*traced.results, *traced.effects]:
        channels = actual.facts.channels(result)
        needed |= set() if channels is None else set(actual.root[channels.units].tolist())
    for uses in actual.uses.values():
        inputs = uses.first.inputs
        chosen = carriers(uses, actual.carried(uses), actual.kept(inputs))
        needed |= set(actual.root[inputs.units[chosen]].tolist())
    if weight not in actual.uses:
        return torch.zeros_like(outputs.known)
    own = actual.uses[weight].first.outputs
    free = torch.tensor([unit not in needed for unit in actual.root[own.units].tolist()])
    return own.known & free


def _reason(actual: Liveness, weight: str, which: Tensor, *, tied: bool) -> str:
    """Why these outputs of a weight stay; ``tied`` if a graph that could be cut anywhere would keep all of them."""
    facts = actual.facts
    if weight not in actual.uses:
        return "its weight is also used in another way"
    units = set(actual.root[actual.uses[weight].first.outputs.units[which]].tolist())
    for kept, reason in facts.kept_for:
        if units & set(actual.root[kept].tolist()):
            return reason
    if facts.frozen & {weight, *(place.bias for place in actual.uses[weight].places)}:
        return "its weight or its bias is also used in another way"
    if not any(bool(actual.live[unit]) for unit in units):
        return LAYOUT
    if bool(actual.uses[weight].first.outputs.known[which].any()):
        return STRANDED
    return TIED if facts.rewrite or tied else "the forward is not replaced"
