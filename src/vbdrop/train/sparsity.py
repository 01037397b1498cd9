"""The weights of a network as the pruning papers count them: those of linear maps, without biases."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd


def weight_layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear | _ConvNd]]:
    """Yield the linear and convolutional layers with their names, in the order of their definition.

    Example:
        >>> from vbdrop.models import LeNet5
        >>> [name for name, _ in weight_layers(LeNet5())]
        ['conv1', 'conv2', 'fc1', 'fc2']
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | _ConvNd):
            yield name, module


@dataclass(frozen=True)
class Sparsity:
    """How many weights a network has, and how many of them are not zero.

    Attributes:
        weights: All of them.
        nonzero: Layer -> those that are not zero.
    """

    weights: int
    nonzero: dict[str, int]

    @property
    def kept(self) -> int:
        """The weights that are not zero, in all layers."""
        return sum(self.nonzero.values())

    @property
    def ratio(self) -> float:
        """How many times fewer weights are left; infinite if none is."""
        return self.weights / self.kept if self.kept else math.inf


def sparsity(model: nn.Module, weights: int | None = None) -> Sparsity:
    """Count the weights of a network.

    Args:
        model: The network.
        weights: How many it had at first, where some were taken out of it; None for those that it has.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> _ = torch.nn.init.eye_(layer.weight)
        >>> sparsity(nn.Sequential(layer))
        Sparsity(weights=6, nonzero={'0': 2})
    """
    layers = dict(weight_layers(model))
    nonzero = {name: int(torch.count_nonzero(layer.weight.detach())) for name, layer in layers.items()}
    return Sparsity(sum(layer.weight.numel() for layer in layers.values()) if weights is None else weights, nonzero)
