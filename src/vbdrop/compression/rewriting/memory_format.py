"""The order in which a small model keeps its images: channel by channel, or pixel by pixel (channels last).

A CPU runs PyTorch's max-pooling pixel by pixel several channels at a time, and channel by channel one value at a time.
In a network whose convolutions became small, that pooling is what takes most of the time: 1.7 ms of 2.7 in a LeNet-5
with 8 and 13 channels, against 0.5 with channels last.
"""

import torch
from torch import Tensor, nn
from torch._ops import OpOverload

from vbdrop.analysis.constant_channels import WITHOUT_CHANNELS
from vbdrop.analysis.graph import Traced, is_tensor, size_of
from vbdrop.analysis.rules.table import RULES

IMAGE_DIMS = 4
"""Batch, channels, height and width."""

MAX_POOLS = {"max_pool2d", "max_pool2d_with_indices"}


def prefers_channels_last(traced: Traced, model: nn.Module) -> bool:
    """Whether a small model should have its weights in `torch.channels_last`; its images then take that order on.

    It should if the model pools maxima of images on a CPU. Not so if it returns images, which the caller may want to
    `view` as before, or if it has an operation that is not known and may depend on the order. A model that has that
    order already keeps it.

    Args:
        traced: The model's graph.
        model: The model, for the device that it is on.

    Example:
        >>> from vbdrop.analysis.graph import trace
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten())
        >>> prefers_channels_last(trace(model, (torch.zeros(2, 3, 8, 8),)), model)
        True
        >>> prefers_channels_last(trace(model[:2], (torch.zeros(2, 3, 8, 8),)), model[:2])
        False
    """
    if any(_is_channels_last(parameter) for parameter in model.parameters()):
        return True
    calls = [node.target for node in traced.graph.nodes if isinstance(node.target, OpOverload)]
    operations = {call.overloadpacket.__name__ for call in calls}
    known = all(name in RULES or name.startswith(WITHOUT_CHANNELS) for name in operations)
    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    returns_images = any(len(size_of(node)) >= IMAGE_DIMS for node in traced.results if is_tensor(node))
    return bool(operations & MAX_POOLS) and known and on_cpu and not returns_images


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
