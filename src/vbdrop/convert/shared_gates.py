"""One gate for all layers that read the same channels: trace the graph that shows them, and install the gates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vbdrop.analysis.channel_groups import ChannelGroups
from vbdrop.analysis.graph import Traced, TraceError, trace
from vbdrop.convert.example_inputs import copied
from vbdrop.layers import Gate, GatedAttention, GatedNorm, NoisyLayer, OpenAttention, SharedGate, Units
from vbdrop.layers.attention import gate_attention_
from vbdrop.layers.companions import weight_names
from vbdrop.layers.computed_weight import make_products_
from vbdrop.layers.gated_norm import gate_norm_

PROJECTION = "in_proj_weight"
"""The weight with which torch's attention projects queries, keys and values together."""


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
    plain = copied(model)
    for module in plain.modules():
        if isinstance(module, NoisyLayer | GatedNorm | GatedAttention):
            module.strip_()
    make_products_(plain)
    plain.eval()
    named = example_inputs if isinstance(example_inputs, Mapping) else {}
    arguments = (example_inputs,) if isinstance(example_inputs, Tensor) else () if named else tuple(example_inputs)
    try:
        return PlainGraph(trace(plain, arguments, named), plain)
    except TraceError as error:
        raise TraceError(
            f"`Units` with `example_inputs` follows the channels through a trace of the model, and {error}. Without "
            "`example_inputs` each layer gets its own gates, but vbdrop.compress needs the same trace to remove units, "
            "and otherwise only sets dead ones to zero. To remove them, take out of the forward what depends on the "
            "values of tensors."
        ) from error


def share_gates_(model: nn.Module, mode: Units, found: ChannelGroups) -> None:
    """Install the gates of all groups; each is a submodule of the first layer that reads it.

    The KL of a gate is weighted by the cost of its channel: the weights or multiply-adds that are removed with it,
    divided by their mean over all gates, so that the factors have mean 1.

    Args:
        model: The model; the layers that read the groups are already noisy.
        mode: Prior, threshold and initial variance.
        found: The groups.
    """
    gates = SharedGates(mode, found)
    for name, members in found.readers.items():
        path, matrix = _place(model, name)
        layer = model.get_submodule(path)
        if isinstance(layer, OpenAttention):
            gate_attention_(layer, gates.at(-1, members, layer.get_parameter(matrix)))
            continue
        if not isinstance(layer, NoisyLayer):
            raise TypeError(f"the layer {path!r} must be a noisy layer; got {type(layer).__name__}.")
        layer.share_gate_(gates.at(layer.unit_axis, members, layer.get_parameter(matrix)), matrix)
    for path, (site, members) in found.norms.items():
        norm = model.get_submodule(path)
        like = next(norm.parameters(recurse=False), torch.empty(0))
        gate_norm_(norm, site.kind, gates.at(-site.from_end, members, like))


class SharedGates:
    """The gates of all groups, each created where it is first used.

    Args:
        mode: Prior, threshold and initial variance.
        found: The groups.
    """

    def __init__(self, mode: Units, found: ChannelGroups) -> None:
        self.mode = replace(mode, filter_fn=None, outputs=None)
        self.groups = found.groups
        units = sum(group.units for group in found.groups)
        self.costs = [group.macs if mode.cost == "macs" else group.weights for group in found.groups]
        total = sum(group.units * cost for group, cost in zip(found.groups, self.costs, strict=True))
        self.mean = total / max(units, 1)
        self.gates: dict[int, Gate] = {}

    def at(self, axis: int, members: Tensor, like: Tensor) -> SharedGate:
        """The gates of one reader.

        Args:
            axis: The axis of its inputs, counted from the end.
            members: For each input, the group and the index in it.
            like: A tensor whose device and dtype new gates take.
        """
        own = {}
        numbers = [number for number in dict.fromkeys(members[:, 0].tolist()) if number >= 0]
        for number in numbers:
            if number not in self.gates:
                group = self.groups[number]
                gate = self.gates[number] = Gate(group.units, axis, self.mode, like)
                gate.kl_factor = self.costs[number] / self.mean
                own[f"{group.name.replace('.', '_')}_channels"] = gate
        index, start = members[:, 1].clone(), 0
        for number in numbers:
            index[members[:, 0] == number] += start
            start += self.groups[number].units
        return SharedGate(axis, own, [self.gates[number] for number in numbers], index)


def _place(model: nn.Module, reader: str) -> tuple[str, str]:
    """The path of a reader's module and the name of its matrix; a reader is a layer or one matrix of a layer."""
    path, _, matrix = reader.rpartition(".")
    is_matrix = matrix == PROJECTION or (matrix in weight_names(model.get_submodule(path)) and matrix != "weight")
    return (path, matrix) if is_matrix else (reader, "weight")
