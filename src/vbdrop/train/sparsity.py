"""Counts the weights of a network as the pruning papers do: those of linear maps, without biases."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from vbdrop._torch_compat import ConvNd


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


@dataclass(frozen=True)
class Sparsity:
    """The number of weights of a network, and how many are not zero.

    Attributes:
        weights: The total.
        nonzero: Layer -> the number of non-zero weights.
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
        weights: Its original number, if some were removed; None for its current number.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> _ = torch.nn.init.eye_(layer.weight)
        >>> sparsity(nn.Sequential(layer))
        Sparsity(weights=6, nonzero={'0': 2})
    """
    layers = dict(weight_layers(model))
    nonzero = {name: int(torch.count_nonzero(layer.weight.detach())) for name, layer in layers.items()}
    return Sparsity(sum(layer.weight.numel() for layer in layers.values()) if weights is None else weights, nonzero)
