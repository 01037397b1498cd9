"""The VGG-like network that the pruning papers train on CIFAR-10."""

from torch import Tensor, nn

from vbdrop.models.widths import checked, scaled

BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""The channels of each convolution; a 2 x 2 max-pool ends each block."""

BATCH_NORM_EPS = 1e-3


class VGG(nn.Module):
    """Thirteen 3 x 3 convolutions, a hidden layer of 512k units, batch normalisation and ReLU after each.

    14,977,728 weights at width 1. The layers before a batch normalisation have no bias, since it would have no
    effect. Dropout is left to the training method.

    Args:
        width: The factor k on every width.
        classes: The number of outputs.

    Example:
        >>> import torch
        >>> VGG(width=0.25)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, width: float = 1.0, *, classes: int = 10) -> None:
        super().__init__()
        self.arguments = {"width": width, "classes": classes}
        layers: list[nn.Module] = []
        before = 3
        for block in BLOCKS:
            for channels in block:
                after = scaled(channels, "width", width)
                layers += [
                    nn.Conv2d(before, after, kernel_size=3, padding=1, bias=False),
                    nn.BatchNorm2d(after, eps=BATCH_NORM_EPS),
                    nn.ReLU(),
                ]
                before = after
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        units = scaled(512, "width", width)
        self.classifier = nn.Sequential(
            nn.Linear(before, units, bias=False),
            nn.BatchNorm1d(units, eps=BATCH_NORM_EPS),
            nn.ReLU(),
            nn.Linear(units, checked("classes", classes)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch, ``[batch, classes]``."""
        logits: Tensor = self.classifier(self.features(x).flatten(1))
        return logits
