"""The table of networks: one line each, read by the command line, the documentation and the tests."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from vbdrop.models.kingma_cnn import KingmaCNN
from vbdrop.models.lenet import LeNet5, lenet_300_100, lenet_500_300
from vbdrop.models.mlp import MLP, mlp
from vbdrop.models.vgg import VGG


@dataclass(frozen=True)
class Architecture:
    """A network of the table.

    Attributes:
        factory: Builds the network; its keyword arguments are those of :func:`build`.
        input_shape: The shape of one input, channels first.
        summary: What it is, in one line.
    """

    factory: Callable[..., nn.Module]
    input_shape: tuple[int, ...]
    summary: str


MODELS: dict[str, Architecture] = {
    "mlp": Architecture(mlp, (1, 28, 28), "three hidden ReLU layers of `units` units (340)"),
    "lenet-300-100": Architecture(lenet_300_100, (1, 28, 28), "784-300-100-10, 266,200 weights"),
    "lenet-500-300": Architecture(lenet_500_300, (1, 28, 28), "784-500-300-10, 545,000 weights"),
    "lenet-5": Architecture(LeNet5, (1, 28, 28), "LeNet-5-Caffe, 20-50-800-500, 430,500 weights"),
    "kingma-cnn": Architecture(KingmaCNN, (3, 32, 32), "two convolutions, two hidden layers, times `scale` (1)"),
    "vgg": Architecture(VGG, (3, 32, 32), "VGG-like with batch normalisation, times `width` (1)"),
}


CLASSES: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in (MLP, LeNet5, KingmaCNN, VGG)}
"""The classes of these networks by name. An instance keeps its constructor arguments as ``arguments``, so that a file
can say how to build it again."""


def build(name: str, **arguments: float) -> nn.Module:
    """Build a network of the table, with freshly initialised weights.

    Args:
        name: A key of :data:`MODELS`.
        **arguments: Passed to its factory, such as ``units``, ``scale``, ``width`` or ``classes``.

    Raises:
        ValueError: If the name is not in the table, or the network does not take an argument.

    Example:
        >>> build("kingma-cnn", scale=2).fc1
        Linear(in_features=6272, out_features=256, bias=True)
    """
    if not isinstance(name, str) or name not in MODELS:
        raise ValueError(f"`name` must be one of {', '.join(MODELS)}; got {name!r}.")
    try:
        return MODELS[name].factory(**arguments)
    except TypeError as error:
        raise ValueError(f"The arguments {arguments} do not fit the network {name!r}: {error}.") from error
