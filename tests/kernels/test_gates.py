"""Gates in training: the compiled kernels against the plain formula."""

import math

import pytest
import torch

from vbdrop.functional import noisy_gates_reference
from vbdrop.kernels import noisy_gates
from vbdrop.priors import log_alpha_of

SHAPES = [((7, 33), -1), ((3, 5, 70), -1), ((4, 9, 6), -2), ((4, 130, 3, 5), -3), ((2, 3, 2, 4, 5), -4), ((0, 33), -1)]


@pytest.fixture(autouse=True)
def _kernels(switched_on):
    """Every test here is one of the kernels."""


def gates(units):
    """Means and log variances of gates, of which a good third is beyond a log_alpha of 0."""
    mean = torch.randn(units).requires_grad_()
    return mean, torch.empty(units).uniform_(-6, 3).requires_grad_()


def noise_for(x, axis):
    return torch.randn(*x.shape[: x.dim() + axis + 1], *[1] * (-axis - 1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("threshold", [None, 0.0])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_values_and_gradients_are_those_of_the_plain_formula(shape, axis, threshold, threads):
    torch.set_num_threads(threads)
    x = torch.randn(shape, requires_grad=True)
    mean, log_sigma2 = gates(shape[axis])
    noise, grad = noise_for(x, axis), torch.randn(shape)
    fused = noisy_gates(x, mean, log_sigma2, axis, threshold, noise)
    plain = noisy_gates_reference(x, mean, log_sigma2, axis, threshold, noise)
    torch.testing.assert_close(fused, plain)
    leaves = (x, mean, log_sigma2)
    found = torch.autograd.grad(fused, leaves, grad)
    expected = torch.autograd.grad(plain, leaves, grad)
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)
    torch.set_num_threads(1)


def test_the_noise_it_draws_is_one_number_a_sample_and_unit_with_the_gates_moments():
    """40,000 samples; mean and variance within 5 standard errors."""
    n = 40_000
    mean, log_sigma2 = torch.tensor([1.0, -0.5]).requires_grad_(), torch.tensor([-1.0, 0.5]).requires_grad_()
    draws = noisy_gates(torch.ones(n, 2, 3), mean, log_sigma2, axis=-2).detach()
    assert torch.equal(draws, draws[:, :, :1].expand_as(draws))
    z, variance = draws[:, :, 0], log_sigma2.detach().exp()
    assert ((z.mean(0) - mean.detach()).abs() <= 5 * (variance / n).sqrt()).all()
    assert ((z.var(0) - variance).abs() <= 5 * variance * math.sqrt(2 / n)).all()
    assert torch.corrcoef(z.T)[0, 1].abs() < 5 / math.sqrt(n)


def test_masked_gates_pass_noise_and_no_mean():
    mean, log_sigma2 = gates(40)
    dead = log_alpha_of(mean, log_sigma2).detach() >= 0
    assert 0.1 < dead.float().mean() < 0.9
    out = noisy_gates(torch.ones(1, 40), mean, log_sigma2, -1, 0.0, torch.zeros(1, 40))
    assert (out[0, dead] == 0).all()
    (by_mean,) = torch.autograd.grad(out.sum(), mean)
    assert (by_mean[dead] == 0).all()
    assert (by_mean[~dead] == 1).all()


@pytest.mark.parametrize("change", ["strided", "double", "half", "negative"])
def test_what_the_kernels_cannot_take_goes_by_the_plain_formula(change):
    x = torch.randn(5, 8)
    mean, log_sigma2 = gates(4)
    x = x[:, ::2] if change == "strided" else x[:, :4].contiguous()
    x = {"double": x.double(), "half": x.half()}.get(change, x)
    if change == "negative":  # torch notes the sign and leaves the numbers as they are
        x = torch.complex(torch.zeros(5, 4), x).conj().imag
        assert x.is_neg()
    noise = torch.randn(5, 4)
    out = noisy_gates(x, mean, log_sigma2, -1, None, noise)
    torch.testing.assert_close(out, noisy_gates_reference(x, mean, log_sigma2, -1, None, noise))
    assert out.dtype == x.dtype


def test_features_that_do_not_fit_are_refused():
    mean, log_sigma2 = gates(3)
    with pytest.raises(ValueError, match=r"`x` must have 3 units on axis -1; got the shape \(8, 1\)"):
        noisy_gates(torch.ones(8, 1), mean, log_sigma2, -1)


@pytest.mark.parametrize("noise", [torch.full((1, 3), 2.0), torch.full((4, 3), 2.0, dtype=torch.float64)])
def test_noise_that_the_kernel_cannot_take_is_that_of_the_plain_formula(noise):
    mean, log_sigma2 = gates(3)
    arguments = (torch.randn(4, 3), mean, log_sigma2, -1, None, noise)
    torch.testing.assert_close(noisy_gates(*arguments), noisy_gates_reference(*arguments))


def test_gates_that_were_replaced_after_the_forward_are_refused():
    mean, log_sigma2 = gates(300)
    out = noisy_gates(torch.randn(4, 300), mean, log_sigma2, -1)
    mean.data, log_sigma2.data = torch.ones(10), torch.ones(10)
    with pytest.raises(RuntimeError, match="replaced between forward and backward"):
        out.sum().backward()


def test_frozen_gates_get_no_gradient():
    x, (mean, log_sigma2) = torch.randn(4, 3, requires_grad=True), gates(3)
    noisy_gates(x, mean.requires_grad_(False), log_sigma2, -1).sum().backward()
    assert mean.grad is None
    assert log_sigma2.grad.isfinite().all()
    assert x.grad.isfinite().all()
