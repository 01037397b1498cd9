"""The convolutional network of Kingma, Salimans and Welling (2015) for 32 x 32 colour images."""

from torch import Tensor, nn
from torch.nn.functional import softplus

from vbdrop.models.widths import checked, scaled


class KingmaCNN(nn.Module):
    """Two strided convolutions and two hidden layers, all with softplus; the net of Tables 2 and 3.

    The published text gives 32k and 64k feature maps with stride 2 and softplus, then two layers of 128k
    units. It gives neither the kernel, taken as 3 x 3 without padding (32 -> 15 -> 7), nor the activation
    after the fully connected layers, taken as softplus too: without one they would be a single linear map.

    Args:
        scale: The factor k on every width; the tables use 1, 1.5 and 2.
        classes: The number of outputs.

    Example:
        >>> import torch
        >>> net = KingmaCNN(scale=1.5)
        >>> net.conv1.out_channels, net.conv2.out_channels, net.fc1.out_features
        (48, 96, 192)
        >>> net(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, scale: float = 1.0, *, classes: int = 10) -> None:
        super().__init__()
        self.arguments = {"scale": scale, "classes": classes}
        first, second, units = (scaled(width, "scale", scale) for width in (32, 64, 128))
        self.conv1 = nn.Conv2d(3, first, kernel_size=3, stride=2)
        self.conv2 = nn.Conv2d(first, second, kernel_size=3, stride=2)
        self.fc1 = nn.Linear(second * 7 * 7, units)
        self.fc2 = nn.Linear(units, units)
        self.fc3 = nn.Linear(units, checked("classes", classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch, ``[batch, classes]``."""
        x = softplus(self.conv1(x))
        x = softplus(self.conv2(x))
        x = softplus(self.fc1(x.flatten(1)))
        x = softplus(self.fc2(x))
        logits: Tensor = self.fc3(x)
        return logits
