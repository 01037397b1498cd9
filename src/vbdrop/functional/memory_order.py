"""Tensors in the memory order of another, so that what is computed from both runs at full speed.

Neither function changes a value or a distribution.
"""

import torch
from torch import Tensor

IMAGE_DIMS = 4
"""Batch or outputs, channels, height and width."""


def standard_normal_like(x: Tensor) -> Tensor:
    """Standard normal numbers of a tensor's shape, dtype, device and memory order, drawn in that order.

    `torch.randn_like` takes about eight times as long for a tensor that is not contiguous, such as a batch of images
    with its channels last.

    Example:
        >>> images = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
        >>> standard_normal_like(images).stride() == images.stride()
        True
    """
    if x.is_contiguous():
        return torch.randn_like(x)
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    drawn = torch.randn_like(x.permute(order), memory_format=torch.contiguous_format)
    return drawn.permute([order.index(axis) for axis in range(x.dim())])


def strided_as(like: Tensor, tensor: Tensor) -> Tensor:
    """The weight of a convolution with one input channel, with the strides of ``like``, which has the same shape.

    If there is only one channel, a tensor may count as contiguous and as channels last at once, and elementwise
    functions return the former. The strides select the memory order of the convolution's output: without this, the
    mean and the variance of an output, or the outputs of two layers, would have different ones.

    Example:
        >>> theta = torch.empty(4, 1, 3, 3, memory_format=torch.channels_last)
        >>> theta.exp().stride(), strided_as(theta, theta.exp()).stride()
        ((9, 9, 3, 1), (9, 1, 3, 1))
    """
    if tensor.dim() != IMAGE_DIMS or tensor.shape[1] != 1 or tensor.stride() == like.stride():
        return tensor
    return tensor.squeeze(1).unsqueeze(-1).movedim(-1, 1) if like.stride(1) == 1 else tensor
