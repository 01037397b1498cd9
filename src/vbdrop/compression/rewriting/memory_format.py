"""The order in which a model keeps its images: channel by channel, or pixel by pixel (channels last).

A small model has the order of the model that was given: which one is faster depends on the layers, the sizes and the
machine.
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
    """Bring the images and kernels of a model into `torch.channels_last`; tensors of other dimensions stay.

    ``model.to(memory_format=...)`` does not take a tensor of five dimensions, as a `torch.nn.Conv3d` has.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3))
        >>> to_channels_last_(model)
        >>> is_channels_last(model)
        True
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == IMAGE_DIMS:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)


def ordered_as(tensor: Tensor, small: Tensor) -> Tensor:
    """What is left of a tensor, in the order that the tensor had.

    Example:
        >>> images = torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last)
        >>> ordered_as(images, torch.zeros(2, 2, 8, 8)).stride()
        (128, 1, 16, 2)
    """
    return small.to(memory_format=torch.channels_last) if _is_channels_last(tensor) else small


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether a tensor has that order by its strides, which say what is wanted where both orders are the same."""
    if tensor.dim() != IMAGE_DIMS or not tensor.is_contiguous(memory_format=torch.channels_last):
        return False
    return tensor.stride() != torch.empty(tensor.shape, device="meta").stride()
