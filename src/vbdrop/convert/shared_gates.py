"""One gate for all layers that read the same channels: the graph that shows them, and the gates in their places."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from vbdrop.analysis.channel_groups import ChannelGroups
from vbdrop.analysis.graph import Traced, trace
from vbdrop.layers import Gate, NoisyLayer, SharedGate, Units
from vbdrop.layers.companions import weight_names


class PlainGraph(NamedTuple):
    """A plain copy of a model, and its graph."""

    traced: Traced
    model: nn.Module


def plain_graph(model: nn.Module, example_inputs: Any) -> PlainGraph:  # noqa: ANN401 -- in any form
    """Trace a copy of a model without its noise.

    Args:
        model: The model; it is not changed.
        example_inputs: Inputs that it accepts: a tensor, a tuple of arguments or a dict of named ones.

    Raises:
        ValueError: If it does not accept them, or `torch.export` cannot trace it.
    """
    plain = copy.deepcopy(model)
    for module in plain.modules():
        if isinstance(module, NoisyLayer):
            module.strip_()
    plain.eval()
    if isinstance(example_inputs, Mapping):
        return PlainGraph(trace(plain, (), example_inputs), plain)
    arguments = (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    return PlainGraph(trace(plain, arguments), plain)


def share_gates_(model: nn.Module, mode: Units, found: ChannelGroups) -> None:
    """Put the gates of all groups in place; each is part of the first layer that reads it.

    The KL of a gate counts by what its channel costs: by the weights that go with it, as a share of their mean over all
    gates, so that the factors have the mean 1.

    Args:
        model: The model; the layers that read the groups are noisy layers already.
        mode: Prior, threshold and initial variance.
        found: The groups.
    """
    units = sum(group.units for group in found.groups)
    mean = sum(group.units * group.weights for group in found.groups) / max(units, 1)
    gates: dict[int, Gate] = {}
    for name, members in found.readers.items():
        path, matrix = _place(model, name)
        layer = model.get_submodule(path)
        if not isinstance(layer, NoisyLayer):
            raise TypeError(f"the layer {path!r} must be a noisy one; got {type(layer).__name__}.")
        own = {}
        numbers = [number for number in dict.fromkeys(members[:, 0].tolist()) if number >= 0]
        for number in numbers:
            if number not in gates:
                group = found.groups[number]
                weight = layer.get_parameter(matrix)
                gate = Gate(group.units, layer.unit_axis, replace(mode, filter_fn=None, outputs=None), weight)
                gate.kl_factor = group.weights / mean
                gates[number] = gate
                own[f"{group.name.replace('.', '_')}_channels"] = gate
        index = members[:, 1].clone()
        start = 0
        for number in numbers:
            index[members[:, 0] == number] += start
            start += found.groups[number].units
        layer.share_gate_(SharedGate(layer.unit_axis, own, [gates[number] for number in numbers], index), matrix)


def _place(model: nn.Module, reader: str) -> tuple[str, str]:
    """The module and the name of the matrix of a reader: a layer's name, or that of a recurrent layer's matrix."""
    path, _, matrix = reader.rpartition(".")
    is_matrix = matrix in weight_names(model.get_submodule(path)) and matrix != "weight"
    return (path, matrix) if is_matrix else (reader, "weight")
