"""What the kernels of linear layers take; what they compute is tested with the functions that call them."""

import pytest
import torch

from vbdrop.functional import linear_kernels


@pytest.fixture(autouse=True)
def _kernels(products):
    """They are there, with products of their own."""


def test_only_matrices_in_memory_that_fit_together_are_taken():
    x, theta, bias, noise = torch.ones(2, 3), torch.ones(4, 3), torch.ones(4), torch.ones(2, 4)
    assert linear_kernels.usable(x, theta, bias, noise)
    assert linear_kernels.usable(x, theta, None, None)
    assert not linear_kernels.usable(torch.ones(2, 5), theta, None, None)
    assert not linear_kernels.usable(torch.ones(2, 2, 3), theta, None, None)
    assert not linear_kernels.usable(torch.ones(0, 3), theta, None, None)
    assert not linear_kernels.usable(torch.ones(3, 2).T, theta, None, None)
    assert not linear_kernels.usable(x.double(), theta, None, None)
    assert not linear_kernels.usable(x, theta, torch.ones(3), None)
    assert not linear_kernels.usable(x, theta, bias.double(), None)
    assert not linear_kernels.usable(x, theta, bias, torch.ones(4, 2))
    with torch.autocast("cpu", torch.bfloat16):
        assert not linear_kernels.usable(x, theta, bias, noise)


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((3,), (1, 3)), ((2, 3), (2, 3)), ((4, 2, 3), (8, 3)), ((), ()), ((4, 0, 3), (4, 0, 3))],
    ids=str,
)
def test_every_place_of_the_features_is_a_row(shape, rows):
    x = torch.randn(shape)
    found = linear_kernels.as_matrix(x)
    assert found.shape == rows
    assert torch.equal(found.flatten(), x.flatten())


def test_a_rate_has_the_gradient_of_a_rate_and_no_kl():
    x, theta, alpha, noise = torch.randn(5, 3), torch.randn(2, 3), torch.rand(3), torch.randn(5, 2)
    sampled = linear_kernels.sample(x, theta, None, alpha, None, 0.0, noise)
    assert sampled.kl == 0.0
    saved = x, theta, None, alpha, sampled.noise_over_deviation, 0.0, 0.0
    found = linear_kernels.sample_gradients(torch.ones(5, 2), *saved, need_x=False, need_bias=False)
    assert [None if each is None else tuple(each.shape) for each in found] == [None, (2, 3), (3,), None]
