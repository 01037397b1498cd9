"""The truncated log-normal against quadrature, over the whole range of its parameters, in value and gradient."""

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import truncnorm

from vbdrop.methods.shared.truncated_log_normal import HIGH, LOW, kl, log_moment, mean, sample, signal_to_noise

POINTS = [(0.0, -5.0), (-1.0, 0.0), (-10.0, 2.0), (-20.0, 3.0), (-0.5, -2.0), (3.0, 0.0), (-19.0, -1.0), (2.0, -1.0)]
EXTREMES = [(mu, log_sigma) for mu in (-20.0, -3.0, 0.0, 5.0) for log_sigma in (-30.0, -10.0, -5.0, 0.0, 5.0)]


def tensors(mu, log_sigma):
    return torch.tensor(mu, dtype=torch.float64), torch.tensor(log_sigma, dtype=torch.float64)


def frozen(mu, log_sigma):
    sigma = math.exp(log_sigma)
    return truncnorm((LOW - mu) / sigma, (HIGH - mu) / sigma, loc=mu, scale=sigma)


def expected(mu, log_sigma, function):
    """The expectation by quadrature, with the mass's place told to the integrator."""
    z = frozen(mu, log_sigma)
    places = [float(z.ppf(q)) for q in (1e-13, 1e-4, 0.01, 0.5, 0.99)]
    parts = zip(places, [*places[1:], HIGH], strict=True)
    return sum(quad(lambda x: z.pdf(x) * function(x), *part, limit=200, epsabs=0, epsrel=1e-11)[0] for part in parts)


@pytest.mark.parametrize(("mu", "log_sigma"), POINTS)
def test_mean_and_signal_to_noise_are_those_of_the_integral(mu, log_sigma):
    first, second = (expected(mu, log_sigma, lambda x, k=k: math.exp(k * x)) for k in (1, 2))
    assert mean(*tensors(mu, log_sigma)).item() == pytest.approx(first, rel=1e-7)
    ratio = first / math.sqrt(second - first**2)
    assert signal_to_noise(*tensors(mu, log_sigma)).item() == pytest.approx(ratio, rel=1e-4)


@pytest.mark.parametrize(("mu", "log_sigma"), POINTS)
def test_the_kl_is_that_of_the_integral(mu, log_sigma):
    z = frozen(mu, log_sigma)
    divergence = expected(mu, log_sigma, lambda x: z.logpdf(x) + math.log(HIGH - LOW))
    assert kl(*tensors(mu, log_sigma)).item() == pytest.approx(divergence, rel=1e-6, abs=1e-9)


def test_the_kl_is_never_negative_and_vanishes_for_a_flat_posterior():
    mu, log_sigma = torch.meshgrid(torch.linspace(-20, 5, 26), torch.linspace(-10, 5, 31), indexing="ij")
    values = kl(mu, log_sigma)
    assert values.min() > -1e-5
    assert kl(*tensors(-10.0, 5.0)).item() < 1e-4


@pytest.mark.parametrize(("mu", "log_sigma"), EXTREMES)
def test_values_and_gradients_stay_finite_at_the_ends(mu, log_sigma):
    for function in (mean, signal_to_noise, kl):
        leaves = [value.requires_grad_() for value in tensors(mu, log_sigma)]
        value = function(*leaves)
        assert value.isfinite(), function.__name__
        assert all(grad.isfinite() for grad in torch.autograd.grad(value, leaves)), function.__name__


def test_the_naive_mean_fails_where_ours_does_not():
    mu, log_sigma = tensors(5.0, -3.0)
    low, high = (LOW - mu) / log_sigma.exp(), (HIGH - mu) / log_sigma.exp()
    naive = torch.special.ndtr(high) - torch.special.ndtr(low)
    assert naive == 0
    assert 0.99 < mean(mu, log_sigma).item() < 1


def test_gradients_of_the_moments_are_right():
    leaves = [torch.tensor([-3.0, 0.5], dtype=torch.float64), torch.tensor([0.3, -1.0], dtype=torch.float64)]
    for leaf in leaves:
        leaf.requires_grad_()
    assert torch.autograd.gradcheck(lambda m, s: log_moment(m, s, 2), leaves)
    assert torch.autograd.gradcheck(kl, leaves)


@pytest.mark.parametrize(("mu", "log_sigma"), [(-0.5, -2.0), (0.0, -1.0), (-1.0, 0.0), (-4.0, 1.0)])
def test_samples_have_the_mean(mu, log_sigma):
    n = 200_000
    uniform = torch.rand(n, dtype=torch.float64)
    draws = sample(*tensors(mu, log_sigma), uniform)
    assert draws.min() >= math.exp(LOW)
    assert draws.max() <= 1
    assert draws.mean().item() == pytest.approx(
        mean(*tensors(mu, log_sigma)).item(), abs=5 * draws.std().item() / n**0.5
    )
