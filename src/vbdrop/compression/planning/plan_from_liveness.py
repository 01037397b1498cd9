"""Derive a plan from liveness: the indices that are kept, folded constants, carriers, attributes."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from vbdrop.analysis.channel_facts import WORTH_A_COPY
from vbdrop.analysis.layer_shapes import INSTANCE_NORMS, owner, shape_of
from vbdrop.analysis.liveness import Liveness, Uses, carriers
from vbdrop.analysis.weight_uses import positions
from vbdrop.compression.planning.plan import Merge, Plan, WeightLayout
from vbdrop.compression.planning.replaced_modules import counted_as, note_replaced
from vbdrop.layers.companions import companion


@dataclass(frozen=True)
class Columns:
    """The inputs of one weight.

    Attributes:
        there: The inputs that are present.
        kept: The inputs that the weight keeps: all that are present, or a selection of them.
    """

    there: Tensor
    kept: Tensor

    @property
    def selected(self) -> bool:
        """Whether the inputs must be selected from those that are present."""
        return not torch.equal(self.there, self.kept)

    def positions(self) -> Tensor:
        """The positions of the kept inputs among those that are present."""
        return self.kept[self.there].nonzero().flatten()


def columns(liveness: Liveness) -> dict[str, Columns]:
    """For every weight, the inputs that it keeps.

    A selection copies its input, so among all weights that read the same channels, at most one has a selection: the one
    for which it removes most.
    """
    found = {weight: _columns(liveness, uses) for weight, uses in liveness.uses.items()}
    selected = [weight for weight in found if found[weight].selected]
    taken = set[int]()
    for weight in sorted(selected, key=lambda weight: -_loss(liveness, weight, found[weight])):
        channels = set(liveness.root[liveness.uses[weight].first.inputs.units].tolist())
        if channels & taken:
            found[weight] = Columns(found[weight].there, found[weight].there)
        taken |= channels
    return found


def _loss(liveness: Liveness, weight: str, columns: Columns) -> float:
    """How many weights a selection removes."""
    return liveness.facts.tensor_size(weight) * float((columns.there & ~columns.kept).double().mean())


def decide(liveness: Liveness, inputs: dict[str, Columns]) -> Plan:
    """Decide what to remove.

    Args:
        liveness: Which units are kept.
        inputs: The result of `columns`.

    Returns:
        A plan without a program.
    """
    facts = liveness.facts
    plan = Plan(positions={alias: n for name, n in positions(facts.traced).items() for alias in facts.aliases(name)})
    for weight, uses in liveness.uses.items():
        if any(place.node in liveness.reached for place in uses.places):
            _decide_product(plan, liveness, uses, inputs[weight])
    for follower in facts.followers:
        if follower.node not in liveness.reached:
            continue
        kept = liveness.present[liveness.root[follower.units]]
        _keep(plan, liveness, follower.name, follower.axis, kept)
        _set_attributes(plan, liveness, follower.name, outputs=int(kept.sum()))
    for path, numbers in facts.attributes.items():
        for attribute, channels in numbers.items():
            if (count := int(liveness.kept(channels).sum())) != len(channels):
                plan.attributes.setdefault(path, {})[attribute] = count
    for node, channels in facts.group_norms.items():
        path = facts.module_path(node)
        before = cast(nn.GroupNorm, facts.model.get_submodule(path)).num_groups
        groups = int(liveness.kept(channels).view(before, -1).any(1).sum())
        if node in liveness.reached and groups != before:
            plan.attributes.setdefault(path, {}).update(
                num_groups=groups, num_channels=int(liveness.kept(channels).sum())
            )
    note_replaced(plan, facts.model)
    for node, channels in () if facts.rewrite else facts.counted.items():
        site = facts.norm_site(node)
        if site is None or "count" in plan.attributes.get(site.path, {}):  # already recorded
            continue
        if node in liveness.reached and not bool(liveness.kept(channels).all()):
            plan.attributes[site.path] = counted_as(site.kind, site.count, site.from_end)
    _set_instance_norms(plan, liveness)
    return plan


def _set_instance_norms(plan: Plan, liveness: Liveness) -> None:
    """Record the channels of instance norms without tensors, since the module warns if the number is wrong."""
    facts = liveness.facts
    counts: dict[str, set[int]] = {}
    for node in facts.by_node:
        if node.target is torch.ops.aten.instance_norm.default and node in liveness.reached:
            channels = facts.channels(node)
            kept = -1 if channels is None else int(liveness.kept(channels).sum())
            counts.setdefault(facts.module_path(node), set()).add(kept)
    for path, found in counts.items():
        module, count = facts.model.get_submodule(path), max(found)
        if isinstance(module, INSTANCE_NORMS) and len(found) == 1 and count not in (-1, module.num_features):
            plan.attributes.setdefault(path, {})["num_features"] = count


def _columns(liveness: Liveness, uses: Uses) -> Columns:
    first, there = uses.first, liveness.kept(uses.first.inputs)
    frozen = liveness.facts.frozen & {first.weight, first.bias}
    if not liveness.facts.rewrite or not first.selects or first.groups > 1 or frozen:
        return Columns(there, there)
    needed = liveness.wanted(uses)
    needed = needed | carriers(uses, liveness.carried(uses), there)
    if not bool(needed.any()):
        needed = there & (there.cumsum(0) == 1)
    needed = liveness.rounded(needed, there)
    worth_it = int(needed.sum()) <= (1 - WORTH_A_COPY) * int(there.sum())
    return Columns(there, needed if worth_it else there)


def _decide_product(plan: Plan, liveness: Liveness, uses: Uses, inputs: Columns) -> None:
    first, outputs = uses.first, liveness.kept(uses.first.outputs)
    grouped_outputs = outputs.view(first.groups, -1)
    grouped_inputs = inputs.kept.view(first.groups, -1)
    groups = int((grouped_inputs.any(1) & grouped_outputs.any(1)).sum())
    sides = (inputs.kept, grouped_outputs.any(0)) if first.transposed else (outputs, grouped_inputs.any(0))
    for axis, kept in enumerate(sides):
        _keep(plan, liveness, first.weight, axis, kept)
    if first.transposed or first.groups > 1:
        plan.layouts[first.weight] = WeightLayout(first.groups, first.transposed)
    for bias in {place.bias for place in uses.places} - {None}:
        _keep(plan, liveness, cast(str, bias), 0, outputs)
    _set_attributes(plan, liveness, first.weight, int(outputs.sum()), int(inputs.kept.sum()), groups)
    dropped = ~inputs.kept & uses.known & (uses.value != 0)
    if uses.folds:
        _fold(plan, liveness, uses, dropped, outputs)
    else:
        _merge(plan, liveness, uses, dropped, inputs.kept)


def _fold(plan: Plan, liveness: Liveness, uses: Uses, dropped: Tensor, outputs: Tensor) -> None:
    """Fold the removed constants into the bias, or into the running mean of a following batch normalisation."""
    first = uses.first
    values = torch.where(dropped, uses.value, 0.0).view(first.groups, 1, -1)
    added = (first.total * values).sum(-1).flatten()[outputs]
    if not bool(added.any()):
        return
    mean = None if first.bias is not None else _running_mean(liveness, uses)
    if mean is not None:
        plan.add[mean] = (-added).tolist()
    else:  # under all names of a module that appears several times
        plan.add.update((companion(weight, "bias"), added.tolist()) for weight in liveness.facts.aliases(first.weight))


def _running_mean(liveness: Liveness, uses: Uses) -> str | None:
    """The running mean of a batch normalisation that is the only reader of a product and has no other input."""
    readers = list(uses.first.node.users)
    if len(uses.places) > 1 or len(readers) != 1 or "batch_norm" not in str(readers[0].target):
        return None
    facts, mean = liveness.facts, liveness.facts.name(readers[0].args[3])
    uses_of_mean = [follower for follower in facts.followers if follower.name == mean]
    is_free = mean is not None and mean not in facts.frozen and len(facts.aliases(mean)) == 1
    return mean if len(uses_of_mean) == 1 and is_free else None


def _merge(plan: Plan, liveness: Liveness, uses: Uses, dropped: Tensor, kept: Tensor) -> None:
    """Merge the weights of removed constants into those of the carrier of their group."""
    first = uses.first
    carried = liveness.carried(uses)
    chosen = carriers(uses, carried, kept).view(first.groups, -1)
    gone = (dropped & carried).view(first.groups, -1)
    value = uses.value.view(first.groups, -1)
    _, outputs, inputs = first.nonzero.shape
    for group in gone.any(1).nonzero().flatten().tolist():
        into, source = int(chosen[group].nonzero()), gone[group].nonzero().flatten()
        scale = (value[group][source] / value[group][into]).tolist()
        if first.transposed:  # the first axis holds the inputs of all groups, one group after another
            offset = group * inputs
            merge = Merge(0, offset + into, (offset + source).tolist(), scale, (0, outputs))
        else:
            merge = Merge(1, into, source.tolist(), scale, (group * outputs, (group + 1) * outputs))
        for weight in liveness.facts.aliases(first.weight):
            plan.merge.setdefault(weight, []).append(merge)


def _keep(plan: Plan, liveness: Liveness, name: str, axis: int, kept: Tensor) -> None:
    for alias in liveness.facts.aliases(name):
        plan.shapes[alias] = liveness.facts.shape(name)
        if not bool(kept.all()):
            plan.keep.setdefault(alias, {})[axis] = kept.nonzero().flatten().tolist()


def _set_attributes(
    plan: Plan, liveness: Liveness, name: str, outputs: int, inputs: int | None = None, groups: int | None = None
) -> None:
    """Record the numbers of units of the modules that hold a tensor, if they change."""
    for path in map(owner, liveness.facts.aliases(name)):
        module = liveness.facts.model.get_submodule(path)
        attributes = shape_of(module)
        if attributes is None or (inputs is None and attributes.inputs is not None):
            continue
        is_embedding = isinstance(module, nn.Embedding) and inputs is not None  # tied to a linear layer
        numbers = {attributes.outputs: inputs if is_embedding else outputs, attributes.inputs: inputs, "groups": groups}
        for attribute, number in numbers.items():
            if attribute is not None and number is not None and getattr(module, attribute, number) != number:
                plan.attributes.setdefault(path, {})[attribute] = number
