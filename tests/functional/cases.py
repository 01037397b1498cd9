"""The linear maps that formulas and kernels are tested with: each option of torch's layers, in one to three axes."""

from typing import NamedTuple

import torch
from torch import Tensor

from vbdrop.functional import Convolution, MatrixProduct, Product


class Arguments(NamedTuple):
    x: Tensor
    theta: Tensor
    log_sigma2: Tensor
    bias: Tensor
    noise: Tensor
    grad: Tensor


class Case(NamedTuple):
    """A map, and the shapes that fit it."""

    product: Product
    x: tuple[int, ...]
    weight: tuple[int, ...]
    outputs: int

    def arguments(self, dtype: torch.dtype = torch.float64) -> Arguments:
        """Random arguments, leaves of autograd; the first example is all zero."""
        x, theta = torch.randn(self.x, dtype=dtype), torch.randn(self.weight, dtype=dtype) / 3
        x[0] = 0
        log_sigma2, bias = torch.randn(self.weight, dtype=dtype) - 3, torch.randn(self.outputs, dtype=dtype)
        out = self.product(x, theta)
        leaves = [tensor.requires_grad_() for tensor in (x, theta, log_sigma2, bias)]
        return Arguments(*leaves, torch.randn_like(out), torch.randn_like(out))


def convolution(dims: int, transposed: bool = False, groups: int = 1, **options: int) -> Case:
    names = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0} | options
    each = {name: (value,) * dims for name, value in names.items()}
    channels = (4, 6 // groups) if transposed else (6, 4 // groups)
    product = Convolution(transposed=transposed, groups=groups, **each)
    return Case(product, (3, 4, *(7, 6, 5)[:dims]), (*channels, *(3, 2, 2)[:dims]), 6)


CASES = {
    "linear": Case(MatrixProduct(), (5, 4), (6, 4), 6),
    "linear-sequence": Case(MatrixProduct(), (3, 2, 4), (6, 4), 6),
    "linear-one-example": Case(MatrixProduct(), (4,), (6, 4), 6),
}
for dims in (1, 2, 3):
    CASES |= {
        f"conv{dims}d": convolution(dims),
        f"conv{dims}d-stride": convolution(dims, stride=2, padding=1),
        f"conv{dims}d-dilation-groups": convolution(dims, dilation=2, groups=2),
        f"transposed{dims}d": convolution(dims, transposed=True),
        f"transposed{dims}d-stride": convolution(dims, transposed=True, stride=2, padding=1, output_padding=1),
        f"transposed{dims}d-dilation-groups": convolution(dims, transposed=True, dilation=2, groups=2),
    }
