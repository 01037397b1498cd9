"""Counts the weights of a network as the pruning papers do: those of linear maps, without biases."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import ConvNd, storage_id


def weight_layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear | ConvNd]]:
    """Yield the linear and convolutional layers with their names, in the order of their definition.

    Example:
        >>> from vbdrop.models import LeNet5
        >>> [name for name, _ in weight_layers(LeNet5())]
        ['conv1', 'conv2', 'fc1', 'fc2']
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | ConvNd):
            yield name, module


def distinct_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of these layers by the layers' names; a tied weight appears once, under its first layer.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        >>> model[2].weight = model[0].weight
        >>> list(distinct_weights(model))
        ['0']
    """
    weights = {name: layer.weight.detach() for name, layer in weight_layers(model)}  # one read of each, kept alive
    first: dict[tuple[int, int], str] = {}
    for name, weight in weights.items():
        first.setdefault((storage_id(weight.untyped_storage()), int(weight.storage_offset())), name)
    return {name: weights[name] for name in first.values()}


@dataclass(frozen=True)
class Sparsity:
    """The number of weights of a network, and how many are not zero.

    Attributes:
        weights: The total.
        nonzero: Layer -> the number of non-zero weights; a tied weight counts once, under its first layer.
    """

    weights: int
    nonzero: dict[str, int]

    @property
    def kept(self) -> int:
        """The number of non-zero weights in all layers."""
        return sum(self.nonzero.values())

    @property
    def ratio(self) -> float:
        """All weights over non-zero weights; infinite if there are none."""
        return self.weights / self.kept if self.kept else math.inf


def sparsity(model: nn.Module, weights: int | None = None) -> Sparsity:
    """Count the weights of a network.

    Args:
        model: The network.
        weights: The original number of weights, if some were removed; None for the current number.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> _ = torch.nn.init.eye_(layer.weight)
        >>> sparsity(nn.Sequential(layer))
        Sparsity(weights=6, nonzero={'0': 2})
    """
    found = distinct_weights(model)
    nonzero = {name: int(torch.count_nonzero(weight)) for name, weight in found.items()}
    return Sparsity(sum(weight.numel() for weight in found.values()) if weights is None else weights, nonzero)
