"""Units on which no output seems to depend, and why they are kept nevertheless."""

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
    "the groups of a convolution and the heads of an attention need equally many channels, a tensor needs at least "
    "one, a recurrent layer needs more hidden units than projections, and channels are not copied to save a few"
)
"""Why a unit is kept even though nothing reads its values."""


STRANDED = "they are constants that no later bias can absorb, or that are concatenated with others that vary"
"""Why a constant is kept."""


TIED = "they are tied to channels that are needed, or something reads them that cannot be made smaller"
"""Why a unit is kept even though its values have no effect, if nothing more specific is known."""


IN_HEADS = (
    "a head loses single features only if its query, key and value can be followed from their projections to the "
    "attention, and the forward accepts a different number of features"
)
"""Why a unit inside a head is kept."""


class HopefulFacts(ChannelFacts):
    """Facts of a forward pass that treats every operation that cannot be made smaller as if it worked per channel.

    The additional dead units are those that could be removed if that operation could be made smaller.
    """

    def through(self, node: fx.Node) -> Channels | None:
        """The channels of the only input with known channels, if it has the shape of the result."""
        if not is_tensor(node):
            return None
        found = [(source, channels) for source in node.all_input_nodes if (channels := self.channels(source))]
        if len(found) != 1 or size_of(found[0][0]) != size_of(node):
            return None
        channels = found[0][1]
        return Channels.varying(channels.axis, channels.units)

    def keep(self, node: fx.Node, reason: str, *, report: bool = True) -> None:
        """Keep the input channels of a node only if nothing is known about its output."""
        if self.through(node) is None:
            super().keep(node, reason, report=report)


def live_at_best(traced: Traced, model: nn.Module) -> Liveness:
    """The units that would be kept if every operation could lose channels.

    Args:
        traced: The graph.
        model: The traced model, or one of the same structure with other weights.
    """
    return find_live(propagate(traced, model, split_heads=True, kind=HopefulFacts))


def why_dead_units_stay(
    best: Liveness, actual: Liveness, kept: Mapping[str, Any], unread: Mapping[str, Tensor] | None = None
) -> dict[str, str]:
    """For every weight that keeps dead outputs, how many there are and why.

    Args:
        best: The result of `live_at_best`.
        actual: The liveness of the plan.
        kept: Weight -> the indices of its outputs that the plan keeps, None for all.
        unread: Weight -> which of the kept outputs have no effect, as a trial showed.

    Example:
        >>> from vbdrop.analysis.graph import trace
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Softmax(-1), nn.Linear(3, 1)).eval()
        >>> with torch.no_grad():
        ...     _ = model[2].weight[:, 1].zero_()
        >>> traced = trace(model, (torch.zeros(4, 2),))
        >>> actual = find_live(propagate(traced, model))
        >>> why_dead_units_stay(live_at_best(traced, model), actual, {"0.weight": None, "2.weight": None})
        {'0': '1 of 3 outputs is dead but kept: aten.softmax.int reads every channel'}
    """
    found, unread, needed = {}, unread or {}, _needed(actual)
    for weight, uses in best.uses.items():
        tried = unread.get(weight)
        if weight not in kept or (tried is None and not any(place.node in best.reached for place in uses.places)):
            continue
        outputs = uses.first.outputs
        dead = ~best.live[best.root[outputs.units]] | _stranded(actual, weight, outputs, *needed)
        stays = torch.arange(len(outputs)) if kept[weight] is None else torch.tensor(kept[weight], dtype=torch.long)
        idle = dead[stays]
        if tried is not None and len(tried) == len(stays):
            idle = idle | _all_of_unit(tried, outputs.units[stays])
        dead = torch.zeros_like(dead).index_put((stays,), idle)
        if number := len(set(outputs.units[dead].tolist())):  # a unit of a recurrent layer has several rows
            reason = _reason(actual, weight, dead, tied=bool(best.live[best.root[outputs.units[dead]]].all()))
            verb = "is" if number == 1 else "are"
            total = len(set(outputs.units.tolist()))
            found[owner(weight) or weight] = f"{number} of {total} outputs {verb} dead but kept: {reason}"
    return found


def _all_of_unit(which: Tensor, units: Tensor) -> Tensor:
    """The rows of the units whose rows are all in the mask."""
    others = set(units[~which].tolist())
    return torch.tensor([unit not in others for unit in units.tolist()], dtype=torch.bool)


def _needed(actual: Liveness) -> tuple[set[int], set[int]]:
    """The units that the model returns, and those that carry constants."""
    traced, returned, carrying = actual.facts.traced, set[int](), set[int]()
    for result in [*traced.results, *traced.effects]:
        channels = actual.facts.channels(result)
        returned |= set() if channels is None else set(actual.root[channels.units].tolist())
    for uses in actual.uses.values():
        inputs = uses.first.inputs
        chosen = carriers(uses, actual.carried(uses), actual.kept(inputs))
        carrying |= set(actual.root[inputs.units[chosen]].tolist())
    return returned, carrying


def _stranded(actual: Liveness, weight: str, outputs: Channels, returned: set[int], carrying: set[int]) -> Tensor:
    """The outputs that are constant, are not returned by the model, and do not carry other constants.

    If several are tied to each other, one of them is enough as a carrier.
    """
    if weight not in actual.uses:
        return torch.zeros_like(outputs.known)
    own, carrier = actual.uses[weight].first.outputs, dict[int, int]()
    free = [
        root not in returned and (root not in carrying or (known and carrier.setdefault(root, unit) != unit))
        for unit, root, known in zip(
            own.units.tolist(), actual.root[own.units].tolist(), own.known.tolist(), strict=True
        )
    ]
    return own.known & torch.tensor(free)


def _reason(actual: Liveness, weight: str, which: Tensor, *, tied: bool) -> str:
    """Why these outputs of a weight are kept; ``tied`` if they would be kept even if every operation could shrink."""
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
        return LAYOUT if actual.round_to == 1 else f"widths are multiples of {actual.round_to}, as `round_to` says"
    if owner(owner(weight)) in facts.whole_heads or owner(weight) in facts.whole_heads:
        return IN_HEADS
    if bool(actual.uses[weight].first.outputs.known[which].any()):
        return STRANDED
    return TIED if facts.rewrite or tied else "the forward is not replaced"
