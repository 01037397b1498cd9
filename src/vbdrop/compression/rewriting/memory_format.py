"""The memory format of a model's images: channel by channel, or pixel by pixel (channels last).

A small model keeps the format of the given model: which one is faster depends on the layers, the sizes and the machine.
"""

import torch
from torch import Tensor, nn

IMAGE_DIMS = 4
"""Batch, channels, height and width."""


def is_channels_last(model: nn.Module) -> bool:
    """Whether a model has its weights in `torch.channels_last`.

    Example:
        >>> is_channels_last(nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last))
        True
    """
    return any(_is_channels_last(parameter) for parameter in model.parameters())


@torch.no_grad()
def to_channels_last_(model: nn.Module) -> None:
    """Convert the 4-dimensional tensors of a model to `torch.channels_last`; other tensors are not changed.

    ``model.to(memory_format=...)`` does not accept the 5-dimensional weight of a `torch.nn.Conv3d`, and leaves the
    strides of a convolution with one input channel as they are: its output, and all that follows it, would then have
    its channels first.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3))
        >>> to_channels_last_(model)
        >>> is_channels_last(model)
        True
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == IMAGE_DIMS:
            tensor.data = torch.empty_like(tensor, memory_format=torch.channels_last).copy_(tensor)


def ordered_as(tensor: Tensor, small: Tensor) -> Tensor:
    """The remaining values of a tensor, in the tensor's memory format.

    Example:
        >>> images = torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last)
        >>> ordered_as(images, torch.zeros(2, 2, 8, 8)).stride()
        (128, 1, 16, 2)
    """
    return small.to(memory_format=torch.channels_last) if _is_channels_last(tensor) else small


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether a tensor is channels last; if its shape fits both formats, the strides decide."""
    if tensor.dim() != IMAGE_DIMS or not tensor.is_contiguous(memory_format=torch.channels_last):
        return False
    return tensor.stride() != torch.empty(tensor.shape, device="meta").stride()
