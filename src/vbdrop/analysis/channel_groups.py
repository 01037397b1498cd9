"""Which channels of a model live or die together, and which layers read them; each group gets one shared gate."""

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx, nn

from vbdrop.analysis.channel_facts import ChannelFacts, ProductSite
from vbdrop.analysis.constant_channels import fill
from vbdrop.analysis.graph import Traced, arguments_of
from vbdrop.analysis.layer_shapes import owner
from vbdrop.analysis.norm_sites import NormSite, module_path
from vbdrop.analysis.rules.movement import MOVEMENTS
from vbdrop.analysis.rules.pointwise import IDENTITIES
from vbdrop.analysis.rules.pooling import PADS
from vbdrop.analysis.weight_uses import positions

UNGATED = -1
"""The index of a gate for an input that has none."""


@dataclass
class Structure(ChannelFacts):
    """What could be removed from a model whatever its weights are: no weight counts as zero, nothing as constant.

    Attributes:
        gated_norms: The modules that may get gates if they are normalisations over channels.
        norms: Those that are normalisations, by name, with the units of their input channels.
    """

    gated_norms: Collection[str] = ()
    norms: dict[str, tuple[NormSite, Tensor]] = field(default_factory=dict)

    @property
    def keeps_modules(self) -> bool:
        """True: a gate belongs to a module, so modules are called as a whole."""
        return True

    def need_all(self, node: fx.Node, units: Tensor, reason: str) -> None:
        """Keep nothing for a norm with gates: it reads a dead channel as zero."""
        site = self.norm_site(node) if self.module_path(node) in self.gated_norms else None
        if site is None or site.count != len(units):
            super().need_all(node, units, reason)
        elif site.path not in self.norms:
            self.norms[site.path] = site, units
        else:
            self.units.tie(self.norms[site.path][1], units)

    def named(self, name: str) -> Tensor:
        """Arbitrary numbers with the shape of the parameter or buffer of this name."""
        found = super().named(name)
        return torch.linspace(0.5, 1.5, found.numel(), dtype=found.dtype).view(found.shape)


@dataclass(frozen=True)
class ChannelGroup:
    """Channels of the same tensors: a residual stream, the features between two layers, or the heads of an attention.

    Attributes:
        name: The name of the first layer that writes the group.
        units: The number of channels, or whole heads, that can be removed independently.
        writers: The weights that lose rows when a unit is removed.
        readers: The layers that lose columns when a unit is removed.
        weights: How many weights are removed with one unit, on average.
        macs: How many multiply-adds per example are removed with one unit, on average.
    """

    name: str
    units: int
    writers: list[str]
    readers: list[str]
    weights: float
    macs: float


@dataclass(frozen=True)
class ChannelGroups:
    """The result of `find_groups`.

    Attributes:
        groups: The groups, in the order of the graph.
        readers: Layer -> for each of its inputs, the group and the index in it, [inputs, 2], or `UNGATED` twice.
        norms: The same for normalisations over channels, with their formula.
        inputs: Weight -> the same for all channels that it reads, whether they are gated there or elsewhere; without
            depthwise convolutions.
        outputs: Weight -> the same for all channels that it writes.
        left: Layer -> why its inputs are kept.
        weights: The share of the weights of linear layers and convolutions whose inputs or outputs belong to a group.
        macs: The same share of the multiply-adds.
    """

    groups: list[ChannelGroup]
    readers: dict[str, Tensor]
    norms: dict[str, tuple[NormSite, Tensor]]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    left: dict[str, str]
    weights: float
    macs: float


def find_groups(traced: Traced, model: nn.Module, gated: Collection[str], norms: Collection[str] = ()) -> ChannelGroups:
    """Find the channels that can be removed from a model whatever its weights are.

    Channels can be removed if every layer that reads them can have a gate and nothing else needs them. A grouped
    convolution loses the same channels in each of its groups; a depthwise one passes its channels through.

    Args:
        traced: The model's graph.
        model: The plain model.
        gated: The modules that can have gates on their inputs.
        norms: The same for normalisations over channels, which read a residual stream. A layer after such a norm reads
            zeros where the norm's gate is dead, so it needs no gates of its own.

    Example:
        >>> from vbdrop.analysis.graph import trace
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
        >>> found = find_groups(trace(model, (torch.zeros(4, 2),)), model, {"0", "2"})
        >>> [(group.name, group.units, group.readers) for group in found.groups]
        [('0', 3, ['2'])]
        >>> found.weights
        1.0
    """
    facts = fill(Structure(traced, model, gated_norms=frozenset(norms)))
    for product in facts.products:
        _tie_groups(facts, product)
    root = facts.units.roots()
    fixed = torch.zeros(len(root), dtype=torch.bool)
    for units in facts.pinned:
        fixed[root[units]] = True
    left = dict(facts.left)
    behind = _behind_norms(facts)
    for product in facts.products:
        path = owner(product.weight)
        if not is_depthwise(product) and path not in gated and path not in behind:
            fixed[root[product.inputs.units]] = True
            place = module_path(product.node) or path  # not `path` alone: of a tied weight it may be the other layer
            facts.kept_for.append((product.inputs.units, f"{place or 'the model'} reads them and has no gates"))
    members = _members(facts, root, fixed)
    readers = _readers(facts, root, members, {path for path in gated if path not in behind}, left)
    gated_norms = {}
    for path, (site, units) in facts.norms.items():
        found = _gates(members, root[units].tolist())
        if bool((found != UNGATED).any()):
            gated_norms[path] = site, found
    for path, norm in behind.items():
        read = {unit for p in facts.products if owner(p.weight) == path for unit in root[p.inputs.units].tolist()}
        if norm in gated_norms:
            left[path] = f"its inputs have their gates in {norm}"
        else:
            left[path] = f"its inputs are kept: {_reason(facts, root, list(read))}"
    return _described(facts, root, members, readers, gated_norms, left)


def _behind_norms(facts: Structure) -> dict[str, str]:
    """The layers that read only the output of a norm with gates, with the name of the norm."""
    found: dict[str, str | None] = {}
    for product in facts.products:
        source, path = product.source, owner(product.weight)
        while module_path(source) not in facts.norms and _keeps_zeros(source):
            source = source.all_input_nodes[0]
        norm = module_path(source) if module_path(source) in facts.norms else None
        found[path] = norm if path not in found or found[path] == norm else None
    return {path: norm for path, norm in found.items() if norm is not None}


def _keeps_zeros(node: fx.Node) -> bool:
    """Whether an operation leaves the values of its first input unchanged, or adds only zeros."""
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", None)
    if name in PADS:
        call = arguments_of(node)
        return call.get("mode", "constant") == "constant" and not call["value"]
    return bool(node.all_input_nodes) and (name in MOVEMENTS or name in IDENTITIES)


def is_depthwise(product: ProductSite) -> bool:
    """Whether a product has one input in each group, so that its inputs are removed with its outputs."""
    return product.groups > 1 and product.nonzero.shape[2] == 1


def reader(weight: str) -> str:
    """The name under which a layer reads channels: its own or, for a recurrent layer, the name of the matrix.

    Example:
        >>> reader("encoder.0.weight"), reader("encoder.rnn.weight_ih_l0")
        ('encoder.0', 'encoder.rnn.weight_ih_l0')
    """
    return owner(weight) if weight.rpartition(".")[2] == "weight" else weight


def writer(weight: str) -> str:
    """The name under which a layer writes channels: its own or, for a recurrent layer, with layer and direction.

    Example:
        >>> writer("encoder.0.weight"), writer("rnn.weight_ih_l0_reverse"), writer("weight_hr_l1")
        ('encoder.0', 'rnn.l0_reverse', 'l1_projected')
    """
    path, dot, name = weight.rpartition(".")
    if not name.startswith("weight_"):
        return path or weight
    kind, _, cell = name.removeprefix("weight_").partition("_")
    return f"{path}{dot}{cell}{'_projected' if kind == 'hr' else ''}"


def _tie_groups(facts: ChannelFacts, product: ProductSite) -> None:
    """Tie channels that a grouped convolution can only lose together."""
    if product.groups == 1:
        return
    inputs, outputs = (channels.units.view(product.groups, -1) for channels in (product.inputs, product.outputs))
    if is_depthwise(product):
        facts.units.tie(inputs.expand_as(outputs).flatten(), outputs.flatten())
    else:
        for rows in (inputs, outputs):
            facts.units.tie(rows[:1].expand_as(rows).flatten(), rows.flatten())


def _members(facts: ChannelFacts, root: Tensor, fixed: Tensor) -> dict[int, tuple[int, int]]:
    """For every removable unit, its group and its index in the group; all units that a layer writes form one group."""
    read = torch.zeros_like(fixed)
    for product in facts.products:
        if not is_depthwise(product):
            read[root[product.inputs.units]] = True
    group_of: dict[int, int] = {}
    merged: dict[int, int] = {}

    def final(group: int) -> int:
        while merged.get(group, group) != group:
            group = merged[group]
        return group

    writers = [*facts.other_writers.values(), *(product.outputs.units for product in facts.products)]
    for number, written in enumerate(writers):
        units = [unit for unit in root[written].tolist() if bool(read[unit]) and not bool(fixed[unit])]
        present = {final(group_of[unit]) for unit in units if unit in group_of} | {number}
        for group in present:
            merged[group] = min(present)
        group_of.update(dict.fromkeys(units, min(present)))
    members: dict[int, tuple[int, int]] = {}
    counts: dict[int, int] = {}
    order: dict[int, int] = {}
    for unit, group in sorted(group_of.items()):
        index = order.setdefault(final(group), len(order))
        members[unit] = (index, counts.setdefault(index, 0))
        counts[index] += 1
    return members


def _readers(
    facts: ChannelFacts,
    root: Tensor,
    members: dict[int, tuple[int, int]],
    gated: Collection[str],
    left: dict[str, str],
) -> dict[str, Tensor]:
    """The gate of each input of each layer; ``left`` gets the reasons why a layer has no gates."""
    written = {unit for product in facts.products for unit in root[product.outputs.units].tolist()}
    found = {}
    written |= {unit for units in facts.other_writers.values() for unit in root[units].tolist()}
    for product in facts.products:
        path, units = reader(product.weight), root[product.inputs.units].tolist()
        if owner(product.weight) not in gated:
            continue
        if any(unit in members for unit in units) and not is_depthwise(product):
            found[path] = _gates(members, units)
        elif is_depthwise(product):
            left[path] = "its input channels are removed with its output channels"
        elif (across := facts.channels(product.source)) is not None and across.axis != product.inputs.axis:
            left[path] = "it mixes positions and passes the channels on"
        elif any(unit in written for unit in units):
            left[path] = f"its inputs are kept: {_reason(facts, root, units)}"
    return found


def _gates(members: dict[int, tuple[int, int]], units: list[int]) -> Tensor:
    """The group of each unit and its index in the group, [units, 2]; `UNGATED` twice for a unit without a group."""
    return torch.tensor([members.get(unit, (UNGATED, UNGATED)) for unit in units])


def _reason(facts: ChannelFacts, root: Tensor, units: list[int]) -> str:
    """Why these units are kept."""
    for kept, reason in facts.kept_for:
        if set(root[kept].tolist()) & set(units):
            return reason
    returned = [facts.channels(result) for result in facts.traced.results]
    if any(set(root[channels.units].tolist()) & set(units) for channels in returned if channels is not None):
        return "the model returns them"
    return "something reads them that cannot be made smaller"


def _described(
    facts: ChannelFacts,
    root: Tensor,
    members: dict[int, tuple[int, int]],
    readers: dict[str, Tensor],
    norms: dict[str, tuple[NormSite, Tensor]],
    left: dict[str, str],
) -> ChannelGroups:
    """The groups with their names and costs."""
    count = 1 + max((group for group, _ in members.values()), default=-1)
    sizes, weights, macs = [0] * count, [0.0] * count, [0.0] * count
    writers: list[dict[str, None]] = [{} for _ in range(count)]
    reading: list[dict[str, None]] = [{} for _ in range(count)]
    for group, _ in members.values():
        sizes[group] += 1
    uses, seen = positions(facts.traced), set[str]()
    owned, total = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for product in facts.products:
        if product.weight in seen:
            continue
        seen.add(product.weight)
        numel, each = facts.tensor_size(product.weight), uses.get(product.weight, 0)
        kept = []
        for channels, names, name in (
            (product.outputs, writers, product.weight),
            (product.inputs, reading, reader(product.weight)),
        ):
            groups = [members[unit][0] for unit in root[channels.units].tolist() if unit in members]
            kept.append(1 - len(groups) / len(channels))
            for group in groups:
                weights[group] += numel / len(channels)
                macs[group] += each * numel / len(channels)
                names[group].setdefault(name)
        total += torch.tensor([numel, each * numel], dtype=torch.float64)
        owned += torch.tensor([numel, each * numel], dtype=torch.float64) * (1 - kept[0] * kept[1])
    for weight, columns in facts.other_writers.items():
        for group in [members[unit][0] for unit in root[columns].tolist() if unit in members]:
            weights[group] += facts.tensor_size(weight) / len(columns)
            writers[group].setdefault(weight)
    described = [
        ChannelGroup(
            *(writer(next(iter(writers[i]))), sizes[i], list(writers[i]), list(reading[i])),
            *(weights[i] / sizes[i], macs[i] / sizes[i]),
        )
        for i in range(count)
    ]
    shares = (owned / total.clamp_min(1)).tolist()
    inputs = {p.weight: _gates(members, root[p.inputs.units].tolist()) for p in facts.products if not is_depthwise(p)}
    outputs = {p.weight: _gates(members, root[p.outputs.units].tolist()) for p in facts.products}
    return ChannelGroups(described, readers, norms, inputs, outputs, left, *shares)
