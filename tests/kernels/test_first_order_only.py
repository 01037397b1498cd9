import pytest
import torch
from torch.autograd.function import once_differentiable

from vbdrop.kernels.first_order_only import first_order_only


def doubled(guard):
    """An autograd function of 2 x whose backward has this guard."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @guard
        def backward(ctx, grad):
            return grad * 2

    return Doubled.apply


def test_a_first_derivative_passes():
    x = torch.ones(2, requires_grad=True)
    doubled(first_order_only)(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("power", [1, 2])
def test_a_second_derivative_is_refused_whatever_the_incoming_gradient(power):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="set `fused = False`"):
        torch.autograd.grad(doubled(first_order_only)(x).pow(power).sum(), x, create_graph=True)


def test_torchs_own_guard_lets_a_constant_gradient_pass():
    x = torch.ones(2, requires_grad=True)
    (slope,) = torch.autograd.grad(doubled(once_differentiable)(x).sum(), x, create_graph=True)
    assert not slope.requires_grad, "a penalty on it would be ignored"
