import math

import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import invgamma

from vbdrop.priors import Hierarchical, InverseGamma, kl_given_gamma

PRIORS = [InverseGamma(), InverseGamma(shape=1.0, scale=0.5), InverseGamma(shape=3.0, scale=1e-3)]


class Improper(InverseGamma):
    """The same formulas for shapes that are no density, to go to the limit with."""

    def __post_init__(self):
        pass


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize(("theta", "log_sigma2"), [(0.0, -5.0), (0.4, -9.0), (-2.0, 1.0)])
def test_the_best_gamma_is_the_minimum(prior, theta, log_sigma2):
    theta, log_sigma2 = torch.tensor(theta, dtype=torch.float64), torch.tensor(log_sigma2, dtype=torch.float64)

    def objective(log_gamma):
        gamma = torch.tensor(log_gamma, dtype=torch.float64).exp()
        return (kl_given_gamma(theta, log_sigma2, gamma) + prior.hyper_penalty(gamma)).item()

    best = prior.best_gamma(theta**2 + log_sigma2.exp())
    lowest = minimize_scalar(objective, bracket=(-8.0, 0.0), tol=1e-12)
    assert best.log().item() == pytest.approx(lowest.x, abs=1e-5)
    assert prior.kl(theta, log_sigma2).item() == pytest.approx(lowest.fun, abs=1e-10)


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_the_penalty_of_gamma_is_its_log_density_below_the_mode(prior):
    gamma = torch.logspace(-6, 2, 60, dtype=torch.float64)
    density = invgamma(a=prior.shape, scale=prior.scale)
    expected = torch.from_numpy(density.logpdf(prior.mode) - density.logpdf(gamma.numpy()))
    torch.testing.assert_close(prior.hyper_penalty(gamma), expected, rtol=1e-9, atol=1e-9)
    assert (prior.hyper_penalty(gamma) >= 0).all()
    assert prior.hyper_penalty(torch.tensor(prior.mode, dtype=torch.float64)).item() == pytest.approx(0, abs=1e-12)


def test_the_limit_of_a_flat_density_is_the_hierarchical_prior():
    prior = Improper(shape=-1 + 1e-10, scale=1e-13)
    theta = torch.tensor([0.5, -2.0, 0.01], dtype=torch.float64)
    log_sigma2 = torch.tensor([-3.0, 1.0, -6.0], dtype=torch.float64)
    torch.testing.assert_close(prior.kl(theta, log_sigma2), Hierarchical().kl(theta, log_sigma2), rtol=0, atol=1e-7)
    torch.testing.assert_close(prior.best_gamma(theta), theta, rtol=1e-9, atol=0)


def test_at_a_fixed_alpha_a_weight_of_the_priors_own_size_is_the_cheapest():
    prior = InverseGamma()
    own = math.sqrt(2 * prior.scale)
    theta = torch.tensor([own / 100, own, own * 100], dtype=torch.float64)
    small, middle, large = prior.kl(theta, theta.square().log()).tolist()
    assert middle < min(small, large) - 1


@pytest.mark.parametrize("name", ["shape", "scale"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", True])
def test_a_wrong_parameter_is_named(name, value):
    with pytest.raises(ValueError, match=f"`{name}` of InverseGamma must be a finite number above 0; got {value!r}"):
        InverseGamma(**{name: value})
