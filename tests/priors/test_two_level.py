import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from vbdrop.priors import TwoLevelPrior, kl_given_gamma


class Exponential(TwoLevelPrior):
    """A hyper-prior of one's own, p(gamma) = r exp(-r gamma): it says its optimum and its penalty, and no more.

    The optimum is the positive root of r gamma**2 + gamma / 2 - m / 2 = 0.
    """

    rate = 3.0

    def best_gamma(self, second_moment: Tensor) -> Tensor:
        return ((0.25 + 2 * self.rate * second_moment).sqrt() - 0.5) / (2 * self.rate)

    def hyper_penalty(self, gamma: Tensor) -> Tensor:
        return self.rate * gamma


def weights(n=200):
    theta = torch.randn(n, dtype=torch.float64) * 2
    return theta.requires_grad_(), torch.empty(n, dtype=torch.float64).uniform_(-12, 6).requires_grad_()


def test_kl_given_gamma_is_the_divergence_of_two_gaussians():
    theta, log_sigma2 = weights()
    gamma = torch.rand(200, dtype=torch.float64) * 5 + 1e-3
    exact = kl_divergence(Normal(theta, (0.5 * log_sigma2).exp()), Normal(0.0, gamma.sqrt()))
    torch.testing.assert_close(kl_given_gamma(theta, log_sigma2, gamma), exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("theta", "log_sigma2"), [(0.0, -2.0), (1.5, -8.0), (-0.1, 3.0)])
def test_a_new_hyper_prior_is_at_its_minimum_over_gamma(theta, log_sigma2):
    prior = Exponential()
    theta, log_sigma2 = torch.tensor(theta, dtype=torch.float64), torch.tensor(log_sigma2, dtype=torch.float64)

    def objective(log_gamma):
        gamma = torch.tensor(log_gamma, dtype=torch.float64).exp()
        return (kl_given_gamma(theta, log_sigma2, gamma) + prior.hyper_penalty(gamma)).item()

    lowest = minimize_scalar(objective, bracket=(-3.0, 1.0), tol=1e-12)
    assert prior.kl(theta, log_sigma2).item() == pytest.approx(lowest.fun, abs=1e-10)
    assert prior.best_gamma(theta**2 + log_sigma2.exp()).log().item() == pytest.approx(lowest.x, abs=1e-5)


def test_the_envelope_theorem_gives_the_gradients_of_a_new_hyper_prior():
    theta, log_sigma2 = weights()
    by_autograd = torch.autograd.grad(Exponential().kl(theta, log_sigma2).sum(), (theta, log_sigma2))
    closed = Exponential().kl_gradients(theta.detach(), log_sigma2.detach(), log_sigma2.detach().exp())
    torch.testing.assert_close(closed, by_autograd, rtol=1e-9, atol=1e-10)
