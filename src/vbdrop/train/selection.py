"""Selects the features that a linear layer still reads, while the model trains.

The inputs of a network, and the features of a flattened image whose channel is still needed, arrive at a layer whether
or not it reads them. A plan that does not change the forward cannot remove them; a selection in front of the layer can.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vbdrop.analysis.channel_facts import WORTH_A_COPY
from vbdrop.compression import Plan
from vbdrop.train.sparsity import weight_layers


class _Selected:
    """A hook that passes on only some of the features."""

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = torch.tensor(positions)

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        features: Tensor = args[0]
        return (features.index_select(-1, self.positions.to(features.device)), *args[1:])


def select_inputs_(layer: nn.Module, positions: Sequence[int]) -> RemovableHandle:
    """Make a layer read only some of the features that arrive.

    The selection is not part of the ``state_dict``, but a copy of the layer has it.

    Args:
        layer: A layer with as many inputs as there are positions.
        positions: The positions of those features on the last axis.

    Returns:
        The handle that removes the selection.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> handle = select_inputs_(layer, [0, 3])
        >>> layer(torch.ones(5, 4)).shape
        torch.Size([5, 1])
        >>> handle.remove()
    """
    return layer.register_forward_pre_hook(_Selected(positions))


def inputs_read(plan: Plan, name: str, weight: Tensor) -> list[int]:
    """The inputs that a plan keeps and that have a non-zero weight to an output that it keeps.

    Args:
        plan: The plan.
        name: The weight's name in it.
        weight: Its values, in the original shape.

    Example:
        >>> plan = Plan(keep={"weight": {0: [1]}}, shapes={"weight": [2, 3]})
        >>> inputs_read(plan, "weight", torch.tensor([[1.0, 1.0, 1.0], [0.0, 2.0, 3.0]]))
        [1, 2]
    """
    units = plan.kept_inputs(name)
    if name in plan.layouts:  # a grouped or transposed convolution has its inputs on other axes
        groups, transposed = plan.layouts[name].groups, plan.layouts[name].transposed
        return list(range(weight.shape[0] if transposed else groups * weight.shape[1])) if units is None else units
    rows = plan.keep.get(name, {}).get(0)
    kept = weight if rows is None else weight[rows]
    read = kept.flatten(2).any(-1).any(0) if kept.dim() > 2 else (kept != 0).any(0)
    return [unit for unit in (range(weight.shape[1]) if units is None else units) if read[unit]]


def with_selections(
    plan: Plan, network: nn.Module, stays: Mapping[str, Collection[int]], selecting: Collection[str]
) -> tuple[Plan, dict[str, list[int]]]:
    """Extend a plan: also remove inputs that arrive at a linear layer but are not read.

    Args:
        plan: A plan that does not change the forward.
        network: The plain network that it was made for.
        stays: Weight -> the inputs that must not be removed.
        selecting: The layers that already select their inputs.

    Returns:
        The plan with fewer columns, and the layers that must select their inputs: path -> the inputs that arrive there.

    Example:
        >>> network = nn.Linear(4, 2)
        >>> _ = nn.init.eye_(network.weight)
        >>> plan, arriving = with_selections(Plan(shapes={"weight": [2, 4]}), network, {}, [])
        >>> plan.keep, arriving
        ({'weight': {1: [0, 1]}}, {'': [0, 1, 2, 3]})
    """
    holders = Counter(id(tensor) for _, tensor in network.named_parameters(remove_duplicate=False))
    keep, attributes, arriving = dict(plan.keep), dict(plan.attributes), dict[str, list[int]]()
    for path, layer in weight_layers(network):
        name = f"{path}.weight".lstrip(".")
        if not isinstance(layer, nn.Linear) or name not in plan.shapes or holders[id(layer.weight)] > 1:
            continue
        units = plan.kept_inputs(name)
        there = list(range(layer.in_features)) if units is None else units
        needed = {*inputs_read(plan, name, layer.weight.detach()), *stays.get(name, ())}
        selected = [unit for unit in there if unit in needed] or there[:1]
        if path in selecting or len(selected) <= (1 - WORTH_A_COPY) * len(there):
            keep[name] = {**keep.get(name, {}), 1: selected}
            attributes[path] = {**attributes.get(path, {}), "in_features": len(selected)}
            arriving[path] = there
    return replace(plan, keep=keep, attributes=attributes), arriving
