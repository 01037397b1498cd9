"""The networks whose training steps are compared."""

import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vbdrop.models import MLP, LeNet5


def vgg_block() -> nn.Module:
    """The first block of a VGG: two padded convolutions with batch normalisation, pooling, and an output layer."""
    layers: list[nn.Module] = []
    for inputs in (3, 64):
        layers += [nn.Conv2d(inputs, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 16 * 16, 10))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "784-300-100-10": lambda: MLP([300, 100]),
    "3x1060": lambda: MLP([1060] * 3),
    "LeNet-5": LeNet5,
    "VGG block": vgg_block,
}


def network(name: str) -> nn.Module:
    """A network of the table, or hidden layers of equal width: ``"2x512"``."""
    if name in NETWORKS:
        return NETWORKS[name]()
    layers = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", name)
    if layers is None:
        raise ValueError(f"a network must be one of {', '.join(NETWORKS)} or such as '2x512'; got {name!r}.")
    return MLP([int(layers[2])] * int(layers[1]))


def examples(name: str, batch: int) -> tuple[Tensor, Tensor]:
    """Random images and labels for a network."""
    shape = (3, 32, 32) if name == "VGG block" else (1, 28, 28)
    return torch.rand(batch, *shape), torch.randint(10, (batch,))
