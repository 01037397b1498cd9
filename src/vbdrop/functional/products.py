"""The linear maps of noisy layers: a matrix product, with either layout of its weight, and a convolution."""

from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor


class Product(Protocol):
    """A map that is linear in its input and in its weight."""

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The map itself."""


@dataclass(frozen=True)
class MatrixProduct:
    """The product of a linear layer, ``x @ weight.T + bias``, over any number of leading axes.

    Example:
        >>> import torch
        >>> MatrixProduct()(torch.ones(1, 2), torch.tensor([[1.0, 2.0]]))
        tensor([[3.]])
    """

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ weight.T + bias``."""
        return F.linear(x, weight, bias)


@dataclass(frozen=True)
class InputsFirstProduct:
    """The product of a layer whose weight has its inputs on the first axis, ``x @ weight + bias``.

    Example:
        >>> import torch
        >>> InputsFirstProduct()(torch.ones(1, 2), torch.tensor([[1.0], [2.0]]))
        tensor([[3.]])
    """

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ weight + bias``."""
        return F.linear(x, weight.t(), bias)


@dataclass(frozen=True)
class Convolution:
    """A convolution or transposed convolution in one to three dimensions, over a batch.

    Attributes:
        stride: The step in each dimension.
        padding: The zeros added on both sides of each dimension.
        dilation: The spacing of the kernel's taps in each dimension.
        transposed: Whether it is the transposed map.
        output_padding: The size added to one side of the output, for the transposed map.
        groups: The number of groups of channels.

    Example:
        >>> import torch
        >>> one = Convolution((1,), (0,), (1,))
        >>> one(torch.ones(1, 1, 3), torch.ones(1, 1, 2))
        tensor([[[2., 2.]]])
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool = False
    output_padding: tuple[int, ...] = (0,)
    groups: int = 1

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The convolution of ``x`` with ``weight``."""
        # autocast covers these functions on every device, but torch.convolution only on some
        if self.transposed:
            transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(self.stride) - 1]
            return transposed(
                x, weight, bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
            )
        plain = (F.conv1d, F.conv2d, F.conv3d)[len(self.stride) - 1]
        return plain(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
