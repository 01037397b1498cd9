"""Fully connected ReLU networks; with three hidden layers, the network of the paper's Table 1."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import relu

from vbdrop.models.widths import checked


class MLP(nn.Module):
    """A fully connected network: ReLU after each hidden layer, logits at the end.

    Args:
        hidden: The units of each hidden layer, first to last.
        inputs: The number of input values; an image is flattened.
        classes: The number of outputs.

    Example:
        >>> import torch
        >>> MLP([300, 100])(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, hidden: Sequence[int], *, inputs: int = 784, classes: int = 10) -> None:
        super().__init__()
        if not isinstance(hidden, Sequence) or isinstance(hidden, str):
            raise ValueError(f"`hidden` must be a sequence of the units of each hidden layer; got {hidden!r}.")
        self.arguments = {"hidden": list(hidden), "inputs": inputs, "classes": classes}
        widths = [checked("inputs", inputs), *(checked("hidden", width) for width in hidden)]
        self.hidden = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
        self.output = nn.Linear(widths[-1], checked("classes", classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch, ``[batch, classes]``."""
        x = x.flatten(1)
        for layer in self.hidden:
            x = relu(layer(x))
        logits: Tensor = self.output(x)
        return logits


def mlp(units: int = 340, *, inputs: int = 784, classes: int = 10) -> MLP:
    """Build the network of the MNIST classification table: three hidden layers of equal width.

    The published table has 100, 340, 580, 820 and 1060 units.

    Example:
        >>> mlp(100).output
        Linear(in_features=100, out_features=10, bias=True)
    """
    return MLP([checked("units", units)] * 3, inputs=inputs, classes=classes)
