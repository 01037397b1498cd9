"""The size of a compressed network: its weights, and the live units of its layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from vbdrop.analysis.channel_facts import ChannelFacts
from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import Traced
from vbdrop.analysis.liveness import find_live
from vbdrop.train import weight_layers

EXAMPLES = 2
"""This many examples are enough to trace a network."""


@dataclass(frozen=True)
class LayerCount:
    """The counts of a layer.

    A unit is alive if it lies on a path of non-zero weights from an input to an output of the network. Any other unit
    either is a constant, which can be folded into a bias, or is not read.

    Attributes:
        name: Its name in the network.
        kind: ``"conv"`` or ``"linear"``.
        weights: Its weights, without the bias.
        nonzero: The non-zero ones.
        inputs: Its input features or channels.
        inputs_alive: The live ones; None for a layer whose units are not known, or with groups.
        outputs: Its output features or channels.
        outputs_alive: The live ones; None likewise.
    """

    name: str
    kind: str
    weights: int
    nonzero: int
    inputs: int
    inputs_alive: int | None
    outputs: int
    outputs_alive: int | None

    @property
    def sparsity(self) -> float:
        """The share of zeros, in percent."""
        return 100 * (1 - self.nonzero / self.weights)

    @property
    def compact(self) -> int:
        """The weights of the layer without dead units; zeros between live units count."""
        if self.inputs_alive is None or self.outputs_alive is None:
            return self.weights
        return self.weights // (self.inputs * self.outputs) * self.inputs_alive * self.outputs_alive


def count(network: nn.Module, traced: Traced) -> list[LayerCount]:
    """Count the remaining weights and units of a plain network, layer by layer.

    A flattened feature map is counted value by value, as in the papers (the 800 inputs of LeNet-5's fc1).

    Args:
        network: A plain network in which removed weights are exactly zero.
        traced: Its graph, or that of a network of the same structure with other weights.

    Example:
        >>> from vbdrop.analysis.graph import trace
        >>> from vbdrop.models import lenet_300_100
        >>> network = lenet_300_100().eval()
        >>> with torch.no_grad():
        ...     _ = network.hidden[1].weight[:, :250].zero_()
        >>> layers = count(network, trace(network, (torch.zeros(2, 1, 28, 28),)))
        >>> [(layer.inputs_alive, layer.outputs_alive) for layer in layers]
        [(784, 50), (50, 100), (100, 10)]
    """
    layers = list(weight_layers(network))
    if not layers:
        raise ValueError("`network` must have a linear or a convolutional layer; it has none.")
    alive = _alive(propagate(traced, network))
    counts = []
    for name, layer in layers:
        inputs_alive, outputs_alive = alive.get(f"{name}.weight" if name else "weight", (None, None))
        outputs, inputs = (layer.out_features, layer.in_features) if isinstance(layer, nn.Linear) else (
            layer.out_channels, layer.in_channels)  # fmt: skip
        counts.append(
            LayerCount(
                name=name,
                kind="linear" if isinstance(layer, nn.Linear) else "conv",
                weights=layer.weight.numel(),
                nonzero=int(torch.count_nonzero(layer.weight)),
                inputs=inputs,
                inputs_alive=inputs_alive,
                outputs=outputs,
                outputs_alive=outputs_alive,
            )
        )
    return counts


def units(layers: Sequence[LayerCount]) -> list[int] | None:
    """Return the live units as the papers write them; None if they were not counted.

    For a network that begins with a linear layer: its inputs, hidden units and outputs (784-500-300-10). For one that
    begins with a convolution: the channels after each convolution, then the inputs of each linear layer
    (20-50-800-500).

    Example:
        >>> from vbdrop.analysis.graph import trace
        >>> from vbdrop.models import LeNet5
        >>> network = LeNet5().eval()
        >>> units(count(network, trace(network, (torch.zeros(2, 1, 28, 28),))))
        [20, 50, 800, 500]
    """
    found = [layer.outputs_alive if layer.kind == "conv" else layer.inputs_alive for layer in layers]
    if layers[0].kind == "linear":
        found.append(layers[-1].outputs_alive)
    known = [number for number in found if number is not None]
    return known if len(known) == len(found) else None


def _alive(facts: ChannelFacts) -> dict[str, tuple[int, int]]:
    """For the weight of each layer that reads all of its inputs, how many of these and of its outputs are alive.

    A constant unit is not alive, though one of several constants may have to stay to carry the others.
    """
    liveness = find_live(facts)
    returned = torch.zeros_like(liveness.live)
    for pinned in facts.pinned:
        returned[liveness.root[pinned]] = True
    alive = {}
    for weight, uses in liveness.uses.items():
        outputs, roots = uses.first.outputs, liveness.root[uses.first.outputs.units]
        needed = liveness.live[roots] & (~outputs.known | returned[roots])
        if uses.first.groups == 1:
            alive[weight] = int(liveness.wanted(uses).sum()), int(needed.sum())
    return alive
