"""The two linear maps that carry noise, a matrix product and a convolution, each with its gradients."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Product(Protocol):
    """A map that is linear in its input and in its weight."""

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The map itself."""

    def gradients(
        self, grad: Tensor, x: Tensor, weight: Tensor, *, need_x: bool, need_weight: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradients towards ``x`` and ``weight`` for an incoming gradient ``grad``."""

    def bias_gradient(self, grad: Tensor) -> Tensor:
        """The gradient towards the bias."""


@dataclass(frozen=True)
class MatrixProduct:
    """The product of a linear layer, ``x @ weight.T + bias``, over any number of leading axes.

    Example:
        >>> MatrixProduct()(torch.ones(1, 2), torch.tensor([[1.0, 2.0]]))
        tensor([[3.]])
    """

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ weight.T + bias``."""
        return F.linear(x, weight, bias)

    def gradients(
        self, grad: Tensor, x: Tensor, weight: Tensor, *, need_x: bool, need_weight: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """``grad @ weight`` and ``grad.T @ x``."""
        by_x = grad @ weight if need_x else None
        by_weight = _rows(grad).T @ _rows(x) if need_weight else None
        return by_x, by_weight

    def bias_gradient(self, grad: Tensor) -> Tensor:
        """The sum of the gradient over the leading axes."""
        return _rows(grad).sum(0)


def _rows(t: Tensor) -> Tensor:
    """The tensor with its leading axes as one."""
    return t if t.dim() == 2 else t.reshape(-1, t.shape[-1])


@dataclass(frozen=True)
class Convolution:
    """A convolution or transposed convolution in one to three dimensions, over a batch.

    Attributes:
        stride: The step a dimension.
        padding: The zeros added on both sides of a dimension.
        dilation: The distance of the kernel's taps a dimension.
        transposed: Whether it is the transposed map.
        output_padding: The size added to one side of the output, for the transposed map.
        groups: The number of groups of channels.

    Example:
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
        # autocast knows these functions on every device, and torch.convolution on some
        if self.transposed:
            transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(self.stride) - 1]
            return transposed(
                x, weight, bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
            )
        plain = (F.conv1d, F.conv2d, F.conv3d)[len(self.stride) - 1]
        return plain(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def gradients(
        self, grad: Tensor, x: Tensor, weight: Tensor, *, need_x: bool, need_weight: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Both gradients from one call of the backend's own backward."""
        by_x, by_weight, _ = torch.ops.aten.convolution_backward(
            grad,
            x,
            weight,
            None,
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            self.groups,
            [need_x, need_weight, False],
        )
        return by_x, by_weight

    def bias_gradient(self, grad: Tensor) -> Tensor:
        """The sum of the gradient over the batch and over space."""
        return grad.sum((0, *range(2, grad.dim())))
