"""The size of a compressed network: its weights, and the live units in a chain of layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import ConvTransposeNd
from vbdrop.train import weight_layers


@dataclass(frozen=True)
class LayerCount:
    """The counts of a layer.

    A unit is alive if it lies on a path of non-zero weights from an input to an output of the network. Any other unit
    is either a constant, which can be folded into a bias, or is not read.

    Attributes:
        name: Its name in the network.
        kind: ``"conv"`` or ``"linear"``.
        weights: Its weights, without the bias.
        nonzero: The non-zero ones.
        inputs: Its input features or channels.
        inputs_alive: The live ones; None if the network is not a chain of layers.
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


def count(network: nn.Module) -> list[LayerCount]:
    """Count the remaining weights and units of a plain network, layer by layer.

    Weights are counted for any network. Units are counted if its layers form a chain in the order of their definition,
    each reading the output of the one before it, possibly flattened, as in all networks of the tables. A flattened
    feature map is counted value by value, as in the papers (the 800 inputs of LeNet-5's fc1).

    Args:
        network: A plain network in which removed weights are exactly zero.

    Example:
        >>> from vbdrop.models import lenet_300_100
        >>> network = lenet_300_100()
        >>> with torch.no_grad():
        ...     _ = network.hidden[1].weight[:, :250].zero_()
        >>> [(layer.inputs_alive, layer.outputs_alive) for layer in count(network)]
        [(784, 50), (50, 100), (100, 10)]
    """
    layers = list(weight_layers(network))
    if not layers:
        raise ValueError("`network` must have a linear or a convolutional layer; it has none.")
    links = [(_linked(layer)) for _, layer in layers]
    chain = all(link is not None for link in links)
    alive = _alive([link for link in links if link is not None]) if chain else None
    counts = []
    for index, (name, layer) in enumerate(layers):
        outputs, inputs = (layer.out_features, layer.in_features) if isinstance(layer, nn.Linear) else (
            layer.out_channels, layer.in_channels)  # fmt: skip
        counts.append(
            LayerCount(
                name=name,
                kind="linear" if isinstance(layer, nn.Linear) else "conv",
                weights=layer.weight.numel(),
                nonzero=int(torch.count_nonzero(layer.weight)),
                inputs=inputs,
                inputs_alive=int(alive[index][0].sum()) if alive else None,
                outputs=outputs,
                outputs_alive=int(alive[index][1].sum()) if alive else None,
            )
        )
    return counts


def units(layers: Sequence[LayerCount]) -> list[int] | None:
    """Return the live units as the papers write them; None if they were not counted.

    For a network that begins with a linear layer: its inputs, hidden units and outputs (784-500-300-10). For one that
    begins with a convolution: the channels after each convolution, then the inputs of each linear layer
    (20-50-800-500).

    Example:
        >>> from vbdrop.models import LeNet5, lenet_500_300
        >>> units(count(LeNet5())), units(count(lenet_500_300()))
        ([20, 50, 800, 500], [784, 500, 300, 10])
    """
    found = [layer.outputs_alive if layer.kind == "conv" else layer.inputs_alive for layer in layers]
    if layers[0].kind == "linear":
        found.append(layers[-1].outputs_alive)
    known = [number for number in found if number is not None]
    return known if len(known) == len(found) else None


def _linked(layer: nn.Module) -> Tensor | None:
    """Which output reads which input: outputs x inputs, bool; None for a layer that does not read all of them."""
    if isinstance(layer, ConvTransposeNd) or getattr(layer, "groups", 1) != 1:
        return None
    weight = layer.weight
    if not isinstance(weight, Tensor):
        return None
    return (weight != 0).flatten(2).any(-1) if weight.dim() > 2 else weight != 0


def _alive(links: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]] | None:
    """The inputs and outputs of each layer that are on a path through the whole chain."""
    factors = []  # how many inputs of a layer an output of the one before it becomes, when it is flattened
    for before, after in pairwise(links):
        if after.shape[1] % before.shape[0]:
            return None
        factors.append(after.shape[1] // before.shape[0])
    varies = [torch.ones(links[0].shape[1], dtype=torch.bool)]  # what enters a layer depends on an input
    for link, factor in zip(links, [*factors, 1], strict=True):
        varies.append((link & varies[-1]).any(1).repeat_interleave(factor))
    alive = []
    read = torch.ones(links[-1].shape[0], dtype=torch.bool)  # what leaves a layer reaches an output
    for index in reversed(range(len(links))):
        last = index == len(links) - 1
        outputs = read if last else read & (links[index] & varies[index]).any(1)
        inputs = varies[index] & (links[index] & outputs[:, None]).any(0)
        alive.append((inputs, outputs))
        if index:
            read = inputs.view(links[index - 1].shape[0], -1).any(1)
    return alive[::-1]
