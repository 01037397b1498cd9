"""The backward pass over the graph: which units are needed, iterated to a fixed point."""

from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor, fx

from vbdrop.analysis.channel_facts import WORTH_A_COPY, ChannelFacts, ProductSite
from vbdrop.analysis.channels import Channels, Grid

MIN_CARRIER = 0.1
"""A carrier's constant must be at least this share of the largest constant that it carries."""


@dataclass(frozen=True)
class Uses:
    """All places where one weight is used, with the same units at each.

    Attributes:
        places: The products.
        known: The inputs that are the same constant at every place.
        value: The values of these constants.
    """

    places: list[ProductSite]
    known: Tensor
    value: Tensor

    @classmethod
    def of(cls, facts: ChannelFacts, places: list[ProductSite]) -> "Uses":
        """The uses at these places; a weight that is used with a bias other than its own cannot absorb constants."""
        first = places[0].inputs
        known = torch.stack([place.inputs.known & (place.inputs.value == first.value) for place in places]).all(0)
        if not all(place.takes_bias and facts.has_own_bias(place.weight, place.bias) for place in places):
            known &= first.value == 0
        return cls(places, known, first.value)

    @property
    def first(self) -> ProductSite:
        """One of the places, for properties that all of them share."""
        return self.places[0]

    @property
    def folds(self) -> bool:
        """Whether a constant input can be folded into the bias."""
        return all(place.folds for place in self.places)


@dataclass
class Liveness:
    """Which units are kept.

    A *live* unit is needed for its values. A unit that is only *present* is kept because a tensor or a group must not
    become empty or uneven: nothing reads its values, so it needs none of the inputs from which they are computed.

    Attributes:
        facts: The forward pass.
        root: For every number, the number that represents its unit.
        live: For every representative, whether the unit is live.
        present: For every representative, whether the unit is kept.
        uses: The uses of each weight.
        round_to: The widths of layers that lose units are multiples of this.
        reached: The nodes that the result depends on.
    """

    facts: ChannelFacts
    root: Tensor
    live: Tensor
    present: Tensor
    uses: dict[str, Uses]
    round_to: int = 1
    reached: set[fx.Node] = field(default_factory=set)

    def kept(self, channels: Channels) -> Tensor:
        """Which of these channels are kept."""
        return self.present[self.root[channels.units]]

    def kept_along(self, grid: Grid) -> list[int]:
        """How many positions are kept on each axis of a grid whose last axis runs over the features of heads."""
        kept = self.present[self.root[grid.units]]
        leading = [kept.movedim(axis, 0).flatten(1).any(1) for axis in range(kept.dim() - 1)]
        return [*(int(places.sum()) for places in leading), int(kept.sum(-1).max())]

    @property
    def splits_heads(self) -> bool:
        """Whether any head that is kept loses some of its features."""
        for block in self.facts.blocks:
            kept = self.present[self.root[block.members]]
            if bool((kept.any(1) & ~kept.all(1)).any()):
                return True
        return False

    def read(self, uses: Uses) -> Tensor:
        """The inputs for which some live output has a nonzero weight."""
        first = uses.first
        outputs = self.live[self.root[first.outputs.units]].view(first.groups, -1, 1)
        return (first.nonzero & outputs).any(1).flatten()

    def wanted(self, uses: Uses) -> Tensor:
        """The inputs that are read and not constant."""
        return self.read(uses) & ~uses.known

    def carried(self, uses: Uses) -> Tensor:
        """The constants that are read but cannot be folded into a bias: one in each group must carry the others."""
        return self.read(uses) & uses.known & (uses.value != 0) & (not uses.folds)

    def need(self, channels: Channels, which: Tensor) -> None:
        """Mark these channels as live."""
        units = self.root[channels.units[which]]
        self.live[units] = self.present[units] = True

    def hold(self, channels: Channels, which: Tensor) -> None:
        """Mark these channels as present."""
        self.present[self.root[channels.units[which]]] = True

    def rounded(self, which: Tensor, among: Tensor | None = None) -> Tensor:
        """These channels, with others (of those in ``among``) until their number is a multiple of ``round_to``."""
        others = ~which if among is None else among & ~which
        return which | (others & (others.cumsum(0) <= -int(which.sum()) % self.round_to))

    def emptied(self, node: fx.Node) -> list[fx.Node]:
        """The terms of a sum or a concatenation that have no channels left and can be dropped."""
        if not self.facts.rewrite:
            return []
        for scatter in self.facts.scatters:
            if scatter.node is node:
                whole = self.kept(scatter.outputs)
                gone = [term for term, part in scatter.parts.items() if not bool((self.kept(part) & whole).any())]
                return gone if scatter.base is not None or len(gone) < 2 else gone[1:]
        result = self.facts.channels(node) if "aten.cat" in str(node.target) else None
        if result is None or not bool(self.kept(result).any()):
            return []
        terms = {term: self.facts.channels(term) for term in node.all_input_nodes}
        return [term for term, part in terms.items() if part and part.axis == result.axis and not self.kept(part).any()]


def find_live(facts: ChannelFacts, round_to: int = 1) -> Liveness:
    """Find the units that must be kept.

    A unit is live if something live reads it: a graph output, a nonzero weight, or an unknown operation. If a constant
    cannot be folded into a bias, one constant channel of its group is live too.

    Args:
        facts: The forward pass.
        round_to: Layers that lose units keep a few dead ones, so that their widths are multiples of this.

    Example:
        >>> from torch import nn
        >>> from vbdrop.analysis.constant_channels import propagate
        >>> from vbdrop.analysis.graph import trace
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
        >>> with torch.no_grad():
        ...     _ = model[2].weight[:, 1].zero_()
        >>> facts = propagate(trace(model, (torch.zeros(4, 2),)), model)
        >>> find_live(facts).kept(facts.products[0].outputs)
        tensor([ True, False,  True])
    """
    root = facts.units.roots()
    live = torch.zeros(len(root), dtype=torch.bool)
    for units in facts.pinned:
        live[root[units]] = True
    by_weight = groupby(sorted(facts.products, key=lambda p: p.weight), key=lambda p: p.weight)
    uses = {weight: Uses.of(facts, list(places)) for weight, places in by_weight}
    liveness = Liveness(facts, root, live, live.clone(), uses, round_to)
    while _step(liveness):
        pass
    return liveness


def _step(liveness: Liveness) -> bool:
    """Run these steps in order until one changes something; a step runs only when the earlier ones have settled."""
    for step in (_reads, _balance, _even_heads, _carriers, _even_out, _one_each, _wider_than_projections, _round_up):
        before = int(liveness.live.sum()) + int(liveness.present.sum())
        step(liveness)
        if int(liveness.live.sum()) + int(liveness.present.sum()) != before:
            return True
    return False


def _reads(liveness: Liveness) -> None:
    """Mark everything that a live unit reads as live."""
    for uses in liveness.uses.values():
        liveness.need(uses.first.inputs, liveness.wanted(uses))
    for scatter in liveness.facts.scatters:
        result = liveness.live[liveness.root[scatter.outputs.units]]
        for part in scatter.parts.values():
            liveness.need(part, result & ~part.known)
    for block in liveness.facts.blocks:
        members, heads = liveness.root[block.members], liveness.root[block.heads]
        if block.read is None:
            needed = heads[liveness.live[members].any(1)]
        else:
            needed = members[block.read & liveness.live[heads].unsqueeze(1)]
        liveness.live[needed] = liveness.present[needed] = True


def _balance(liveness: Liveness) -> None:
    """Give all remaining groups of a convolution equally many inputs and outputs.

    Along the weight's second axis, which all groups share, every group must also keep the same ones.
    """
    liveness.reached = _reached(liveness)
    for product in liveness.facts.products:
        if product.groups == 1 or product.node not in liveness.reached:
            continue
        sides = (product.inputs, product.outputs)
        inputs, outputs = (liveness.kept(channels).view(product.groups, -1) for channels in sides)
        stays = (inputs.any(1) | outputs.any(1)).unsqueeze(1)
        shared, counted = (outputs, inputs) if product.transposed else (inputs, outputs)
        shared = shared.any(0, keepdim=True) & stays
        counted = _filled(counted, int(counted.sum(1).max())) & stays
        inputs, outputs = (counted, shared) if product.transposed else (shared, counted)
        liveness.hold(product.inputs, inputs.flatten())
        liveness.hold(product.outputs, outputs.flatten())


def _even_heads(liveness: Liveness) -> None:
    """Give all remaining heads of an attention equally many features, and at least one."""
    for block in liveness.facts.blocks:
        members, heads = liveness.root[block.members], liveness.root[block.heads]
        liveness.present[heads[liveness.present[members].any(1)]] = True
        there = liveness.present[heads]
        liveness.present[members[there][_filled(liveness.present[members[there]], 1)]] = True
    for units in liveness.facts.even:
        members = liveness.root[units]
        kept = liveness.present[members]
        kept = _filled(kept, int(kept.sum(1).max())) & kept.any(1, keepdim=True)
        liveness.present[members[kept]] = True


def _filled(rows: Tensor, count: int) -> Tensor:
    """Every row with at least this many true entries; the first false ones become true."""
    missing = count - rows.sum(1, keepdim=True)
    return rows | ((~rows).cumsum(1) <= missing)


def _carriers(liveness: Liveness) -> None:
    """If constants cannot be folded into a bias, let one channel of each group carry all of them."""
    votes = torch.zeros(len(liveness.root))
    for uses in liveness.uses.values():
        votes[liveness.root[uses.first.inputs.units[liveness.carried(uses)]]] += 1
    for uses in liveness.uses.values():
        inputs = uses.first.inputs
        chosen = carriers(uses, liveness.carried(uses), liveness.kept(inputs), votes[liveness.root[inputs.units]])
        liveness.need(inputs, chosen)


def carriers(uses: Uses, carried: Tensor, there: Tensor, votes: Tensor | None = None) -> Tensor:
    """For each group, the constant input that carries the others.

    Args:
        uses: The uses of a weight.
        carried: The constants.
        there: The inputs that are kept anyway; a constant among them is preferred.
        votes: How many weights each input could serve; an input that serves many is preferred, unless its value is too
            small to divide by.
    """
    groups = uses.first.groups
    carried, there, size = carried.view(groups, -1), there.view(groups, -1), uses.value.abs().view(groups, -1)
    served = (carried & there).any(1, keepdim=True)
    candidates = torch.where(served, carried & there, carried)
    largest = torch.where(candidates, size, 0.0).amax(1, keepdim=True)
    candidates &= size >= MIN_CARRIER * largest
    rank = size / largest.clamp_min(1e-300) + (0 if votes is None else 2 * votes.view(groups, -1))
    best = torch.where(candidates, rank, -1.0).argmax(1, keepdim=True)
    return (candidates & (torch.arange(size.shape[1]) == best)).flatten()


def _even_out(liveness: Liveness) -> None:
    """If a term of a sum lacks only a few channels of the result, keep them, so that no scatter is needed."""
    for scatter in liveness.facts.scatters:
        for part in scatter.parts.values():
            own, whole = liveness.kept(part), liveness.kept(scatter.outputs)
            few = max(1, int(WORTH_A_COPY * int(whole.sum())))
            if bool((own & whole).any()):
                for channels, lacking in ((part, whole & ~own), (scatter.outputs, own & ~whole)):
                    if int(lacking.sum()) <= few:
                        liveness.hold(channels, lacking)


def _one_each(liveness: Liveness) -> None:
    """Keep at least one channel of every tensor that the result depends on; a constant channel is the cheapest."""
    liveness.reached = _reached(liveness)
    values = [(product.node, product.inputs) for product in liveness.facts.products]
    values += [(node, known) for node, known in liveness.facts.by_node.items() if isinstance(known, Channels)]
    for node, channels in values:
        if node in liveness.reached and not bool(liveness.kept(channels).any()):
            choice = int(channels.known.to(torch.int8).argmax())
            liveness.hold(channels, torch.arange(len(channels)) == choice)


def _wider_than_projections(liveness: Liveness) -> None:
    """Keep more hidden units than output units in a recurrent layer with projections, as torch requires."""
    for node, hidden, leaving in liveness.facts.projections:
        if node in liveness.reached:
            wanted = int(liveness.kept(leaving).sum()) + 1
            liveness.hold(hidden, _filled(liveness.kept(hidden).view(1, -1), wanted).flatten())


def _round_up(liveness: Liveness) -> None:
    """Keep more units of the layers that lose some, up to the next multiple of ``round_to``, or all of them."""
    if liveness.round_to == 1:
        return
    for product in liveness.facts.products:
        for channels in (product.inputs, product.outputs) if product.node in liveness.reached else ():
            liveness.hold(channels, liveness.rounded(liveness.kept(channels)))


def _reached(liveness: Liveness) -> set[fx.Node]:
    """The nodes from which a path leads to the result, ignoring terms that have no channels left."""
    traced = liveness.facts.traced
    stack, seen = [*traced.results, *traced.effects], set[fx.Node]()
    stack += () if liveness.facts.rewrite else traced.unread
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            emptied = liveness.emptied(node)
            stack += [source for source in node.all_input_nodes if source not in emptied]
    return seen
