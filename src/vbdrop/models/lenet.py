"""The three LeNets on which pruning methods are compared (weight counts exclude biases)."""

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from vbdrop.models.mlp import MLP
from vbdrop.models.widths import checked


def lenet_300_100(*, inputs: int = 784, classes: int = 10) -> MLP:
    """Build LeNet-300-100: 784-300-100-10, 266,200 weights.

    Example:
        >>> [tuple(layer.weight.shape) for layer in lenet_300_100().hidden]
        [(300, 784), (100, 300)]
    """
    return MLP([300, 100], inputs=inputs, classes=classes)


def lenet_500_300(*, inputs: int = 784, classes: int = 10) -> MLP:
    """Build LeNet-500-300: 784-500-300-10, 545,000 weights.

    Example:
        >>> [tuple(layer.weight.shape) for layer in lenet_500_300().hidden]
        [(500, 784), (300, 500)]
    """
    return MLP([500, 300], inputs=inputs, classes=classes)


class LeNet5(nn.Module):
    """LeNet-5-Caffe for 28 x 28 images: 20-50-800-500, 430,500 weights.

    Caffe's own definition has no activation between the convolutions. Like the pruning papers, this network has a ReLU
    after each of them.

    Args:
        classes: The number of outputs.

    Example:
        >>> import torch
        >>> LeNet5()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, *, classes: int = 10) -> None:
        super().__init__()
        self.arguments = {"classes": classes}
        self.conv1 = nn.Conv2d(1, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, checked("classes", classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch, ``[batch, classes]``."""
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2)
        x = relu(self.fc1(x.flatten(1)))
        logits: Tensor = self.fc2(x)
        return logits
