"""Which tensors the kernels take; what they compute is tested with the functions that choose."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from vbdrop.kernels import binding
from vbdrop.kernels.choice import (
    as_matrix,
    check_unreplaced,
    in_memory,
    kernels_apply,
    layouts,
    readable,
    takes,
    takes_linear,
)


@pytest.fixture(autouse=True)
def _kernels(products):
    """They are there, with products of their own."""


def negative(*shape):
    """A tensor whose sign torch has only noted: its numbers in memory have the other one."""
    t = torch.complex(torch.zeros(shape), torch.ones(shape)).conj().imag
    assert t.is_neg()
    return t


def test_other_tensors_are_left_to_torch():
    plain = torch.ones(4)
    assert takes(plain, plain)
    assert not takes(plain, plain.double())
    assert not takes(torch.ones(4, 4).T[1:])
    assert not takes(plain, torch.ones(1))
    assert not takes(plain, negative(4))
    image, last = torch.ones(2, 3, 4, 4), torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert takes(last, last)
    assert not takes(image, last)
    with FakeTensorMode():
        assert not takes(torch.ones(4))


def test_a_subclass_is_left_to_torch():
    class Own(torch.Tensor):
        pass

    assert not takes(torch.ones(4).as_subclass(Own))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, for forward mode
def test_nothing_is_taken_where_the_operations_have_to_be_seen():
    seen = []

    def function(x):
        seen.append(takes(x))
        return x.sin()

    x = torch.ones(3)
    torch.func.vmap(function)(x)
    torch.func.grad(lambda x: function(x).sum())(x)
    torch.func.jvp(function, (x,), (x,))
    with forward_ad.dual_level():
        function(forward_ad.make_dual(x, x))
    assert seen == [False] * 4
    assert takes(x)


def test_nothing_is_taken_without_a_library(monkeypatch):
    assert kernels_apply()
    monkeypatch.setattr(binding, "library", lambda: None)
    assert not kernels_apply()


def test_products_take_only_matrices_in_memory_that_fit_together():
    x, theta, bias, noise = torch.ones(2, 3), torch.ones(4, 3), torch.ones(4), torch.ones(2, 4)
    assert takes_linear(x, theta, bias, noise, 0)
    assert takes_linear(x, theta, None, None, 0)
    assert takes_linear(x, theta, None, torch.ones(2, 3), 1)
    for given in (
        (torch.ones(2, 5), theta, None, None),
        (torch.ones(2, 2, 3), theta, None, None),
        (torch.ones(0, 3), theta, None, None),
        (torch.ones(3, 2).T, theta, None, None),
        (x.double(), theta, None, None),
        (negative(2, 3), theta, None, None),
        (x, theta, torch.ones(3), None),
        (x, theta, bias.double(), None),
        (x, theta, negative(4), None),
        (x, theta, bias, torch.ones(4, 2)),
        (x, theta, bias, torch.ones(2, 3)),
    ):
        assert not takes_linear(*given, 0)
    with torch.autocast("cpu", torch.bfloat16):
        assert not takes_linear(x, theta, bias, noise, 0)


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((3,), (1, 3)), ((2, 3), (2, 3)), ((4, 2, 3), (8, 3)), ((), ()), ((4, 0, 3), (4, 0, 3))],
    ids=str,
)
def test_every_place_of_the_features_is_a_row(shape, rows):
    x = torch.randn(shape)
    found = as_matrix(x)
    assert found.shape == rows
    assert torch.equal(found.flatten(), x.flatten())


def test_a_gradient_is_made_readable():
    for grad in (torch.ones(()).expand(2, 3), torch.ones(3, 2).T, negative(2, 3)):
        found = readable(grad)
        assert in_memory(found)
        assert torch.equal(found, grad)
    plain = torch.ones(2, 3)
    assert readable(plain) is plain


def test_a_tensor_that_is_not_as_it_was_is_refused():
    a, b = torch.ones(2, 3), torch.ones(2, 3)
    before = layouts([a, None, b])
    check_unreplaced([a, None, b], before)
    with pytest.raises(RuntimeError, match=r"replaced between forward and backward.*Got \(1, 3\) torch.float32"):
        check_unreplaced([a[:1], None, b], before)
    for other in (torch.ones(2, 4), a.double(), torch.ones(3, 2).T, None):
        with pytest.raises(RuntimeError, match="replaced between forward and backward"):
            check_unreplaced([a, None, other], before)
    check_unreplaced([a], layouts([torch.ones(3, 2).T]))
