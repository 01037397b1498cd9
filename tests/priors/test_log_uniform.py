import math

import pytest
import torch
from scipy.integrate import quad

from vbdrop.priors import Hierarchical, LogUniform, LogUniformCubic

AT_INFINITE_ALPHA = 0.5 * (math.log(2) + 0.5772156649015329)
"""-E log|z| of a standard normal z: the constant for which the divergence goes to zero as alpha grows."""


def exact(log_alpha: float) -> float:
    """-log(alpha) / 2 + E log|1 + sqrt(alpha) z| + C by quadrature; zero at infinite alpha.

    The logarithm is that of sqrt(alpha) |z - pole|, whose singularity the quadrature takes as a weight.
    """
    pole, far = -math.exp(-0.5 * log_alpha), 14.0

    def density(z):
        return math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    if pole < -far:
        return quad(lambda z: density(z) * math.log(z - pole), -far, far, points=[0.0])[0] + AT_INFINITE_ALPHA
    left = quad(density, -far, pole, weight="alg-logb", wvar=(0, 0))[0]
    right = quad(density, pole, far, weight="alg-loga", wvar=(0, 0))[0]
    return left + right + AT_INFINITE_ALPHA


def gradients(prior, theta, log_sigma2):
    return prior.kl_gradients(theta, log_sigma2, log_sigma2.exp())


def test_the_quadrature_itself():
    assert exact(-12) == pytest.approx(6 + AT_INFINITE_ALPHA, abs=1e-5)  # log|1 + nearly nothing| is nothing
    assert exact(24) == pytest.approx(0, abs=1e-5)


def test_the_sigmoid_approximation_is_within_a_hundredth_of_the_integral():
    log_alpha = torch.linspace(-10, 10, 81, dtype=torch.float64)
    truth = torch.tensor([exact(a) for a in log_alpha.tolist()], dtype=torch.float64)
    assert (LogUniform().kl_at(log_alpha) - truth).abs().max() < 0.01


def test_the_cubic_approximation_follows_the_integral_up_to_alpha_one():
    log_alpha = torch.linspace(-10, 0, 81, dtype=torch.float64)
    truth = torch.tensor([exact(a) for a in log_alpha.tolist()], dtype=torch.float64)
    error = LogUniformCubic().kl_at(log_alpha) - truth
    assert error.max() - error.min() < 0.041
    assert LogUniformCubic().kl_at(torch.zeros(1, dtype=torch.float64)).item() == pytest.approx(0, abs=1e-12)


def test_the_sigmoid_approximation_is_vbds_term_and_one_that_fades():
    log_alpha = torch.tensor([-40.0, 40.0], dtype=torch.float64)
    rest = LogUniform().kl_at(log_alpha) - Hierarchical().kl_at(log_alpha)
    assert rest.tolist() == pytest.approx([0.63576, 0], abs=1e-12)


def test_beyond_alpha_one_the_cubic_approximation_is_flat():
    prior = LogUniformCubic()
    log_alpha = torch.tensor([1e-3, 3.0, 50.0], requires_grad=True)
    value = prior.kl_at(log_alpha)
    value.sum().backward()
    torch.testing.assert_close(value.detach(), torch.zeros(3), atol=1e-6, rtol=0)
    assert (log_alpha.grad == 0).all()
    assert all((g == 0).all() for g in gradients(prior, torch.ones(3), log_alpha.detach()))
    assert gradients(prior, torch.ones(1), torch.tensor([-1e-3]))[1].item() == pytest.approx(-0.416, abs=1e-2)


@pytest.mark.parametrize("prior", [LogUniform(), LogUniformCubic()], ids=str)
@pytest.mark.parametrize("theta", [1.0, -0.03])
def test_float32_gradients_are_precise_in_the_tails(prior, theta):
    log_alpha = torch.linspace(-12, 12, 49)
    theta, log_sigma2 = torch.full_like(log_alpha, theta), log_alpha + math.log(theta**2)
    narrow = gradients(prior, theta, log_sigma2)
    wide = gradients(prior, theta.double(), log_sigma2.double())
    for found, expected in zip(narrow, wide, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)
