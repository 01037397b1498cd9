"""The linear maps that the tests of this room run over: each option of torch's layers, in one to three dimensions."""

from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from vbdrop.functional import Convolution, MatrixProduct, Product, native
from vbdrop.kernels import build, load


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


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture(params=["linear", "conv2d-stride", "transposed1d-stride"])
def some_case(request) -> Case:
    """One of each kind, for what does not depend on the options."""
    return CASES[request.param]


@pytest.fixture(params=["compiled", "torch"])
def _kernels(request, monkeypatch) -> None:
    """With the compiled kernels, where there is a compiler, and without."""
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)


@pytest.fixture
def products(compiler):
    """The kernels with products of their own, which are there on processors that those fit."""
    assert native.library() is not None, "there is a C compiler, so the kernels must build"
    if not native.has_products():
        pytest.skip("NOT TESTED: the kernels have no products for this processor, and torch's are used")


@pytest.fixture
def wide_registers(compiler, monkeypatch):
    """A context with the kernels for registers of 16 numbers, which any processor can run, if slowly."""

    @contextmanager
    def wide():
        kernels = load(build(compiler, "-DWIDTH=16"))
        native.room.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(native, "library", lambda: kernels)
            yield
        native.room.cache_clear()

    return wide


@pytest.fixture(params=[1, 2], ids="{} threads".format)
def threads(request):
    """One thread, and then two."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)
