import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from vbdrop.priors import Hierarchical, LogUniform, kl_given_gamma

PRIOR = Hierarchical()
LOG_ALPHAS = torch.linspace(-12, 12, 97, dtype=torch.float64)
THETAS = [1.0, -1.0, 37.0, 1e-2, -1e-5]


def exact(theta: torch.Tensor, log_sigma2: torch.Tensor) -> list[mpmath.mpf]:
    """The penalty in 50 digits, of exactly these (rounded) means and log variances."""
    with mpmath.workdps(50):
        pairs = zip(theta.tolist(), log_sigma2.tolist(), strict=True)
        return [mpmath.log1p(mpmath.mpf(t) ** 2 * mpmath.exp(-mpmath.mpf(s))) / 2 for t, s in pairs]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-6)])
@pytest.mark.parametrize("theta", THETAS)
def test_value_is_exact_over_the_whole_range_of_alpha(theta, dtype, tolerance):
    log_sigma2 = (LOG_ALPHAS + math.log(theta**2)).to(dtype)
    theta = torch.full_like(log_sigma2, theta)
    found = PRIOR.kl(theta, log_sigma2).tolist()
    errors = [abs(mpmath.mpf(f) - e) / e for f, e in zip(found, exact(theta, log_sigma2), strict=True)]
    assert max(errors) < tolerance


def test_the_naive_formula_loses_the_tail_in_float32():
    log_alpha = torch.tensor([12.0, 20.0])
    naive = 0.5 * torch.log(1 + 1 / log_alpha.exp())
    truth = torch.tensor([0.5 * math.log1p(math.exp(-a)) for a in log_alpha.tolist()])
    assert ((naive - truth).abs() / truth > 1e-3).all()
    torch.testing.assert_close(PRIOR.kl_at(log_alpha), truth, rtol=1e-6, atol=0)


@pytest.mark.parametrize("log_sigma2", [-9.0, -1.0, 2.0])
@pytest.mark.parametrize("theta", [0.3, -2.0])
def test_the_best_gamma_is_the_second_moment_and_gives_the_collapsed_form(theta, log_sigma2):
    """Eq. 16: minimising Eq. 15 over gamma by search gives gamma* and, in its place, Prop. 3."""
    theta, log_sigma2 = torch.tensor(theta, dtype=torch.float64), torch.tensor(log_sigma2, dtype=torch.float64)

    def with_gamma(log_gamma):
        gamma = torch.tensor(log_gamma, dtype=torch.float64).exp()
        return (kl_given_gamma(theta, log_sigma2, gamma) + PRIOR.hyper_penalty(gamma)).item()

    lowest = minimize_scalar(with_gamma, bracket=(-2.0, 2.0), tol=1e-12)
    second_moment = theta**2 + log_sigma2.exp()
    assert second_moment.log().item() == pytest.approx(lowest.x, abs=1e-6)
    assert PRIOR.best_gamma(second_moment) == second_moment
    assert PRIOR.kl(theta, log_sigma2).item() == pytest.approx(lowest.fun, abs=1e-12)


@pytest.mark.parametrize("theta", THETAS)
def test_the_penalty_does_not_depend_on_theta_at_a_fixed_alpha(theta):
    """Prop. 3."""
    theta = torch.full_like(LOG_ALPHAS, theta)
    of_this_theta = PRIOR.kl(theta, LOG_ALPHAS + theta.square().log())
    torch.testing.assert_close(of_this_theta, PRIOR.kl_at(LOG_ALPHAS), rtol=1e-10, atol=0)


def test_with_a_fixed_gamma_the_penalty_is_not_that_of_vd():
    """At a fixed alpha VD's penalty is a constant; that of N(0, gamma) grows with theta squared, less its logarithm."""
    theta = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)
    log_alpha = torch.tensor(-1.0, dtype=torch.float64)
    log_sigma2 = log_alpha + theta.square().log()
    vd = LogUniform().kl(theta, log_sigma2)
    torch.testing.assert_close(vd, vd[:1].expand(3))
    fixed = kl_given_gamma(theta, log_sigma2, torch.ones_like(theta))
    by_theta = 0.5 * (1 + log_alpha.exp()) * theta.square() - theta.abs().log()
    torch.testing.assert_close(fixed - fixed[0], by_theta - by_theta[0])


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(0, 1))
def test_the_penalty_is_concave_and_non_decreasing_in_the_inverse_of_alpha(first, second, share):
    """Prop. 4: a chord lies below the curve, and more precision never costs less."""

    def penalty(inverse):
        return PRIOR.kl_at(-torch.tensor(inverse, dtype=torch.float64).log()).item()

    between = penalty(share * first + (1 - share) * second)
    chord = share * penalty(first) + (1 - share) * penalty(second)
    assert between >= chord - 1e-12 * (1 + abs(chord))
    assert penalty(max(first, second)) >= penalty(min(first, second))


def test_the_gradients_are_the_rational_ones():
    theta, log_sigma2 = torch.tensor([2.0, -0.5, 0.0]), torch.tensor([0.0, 1.0, -3.0])
    second_moment = theta**2 + log_sigma2.exp()
    by_theta, by_log_sigma2 = PRIOR.kl_gradients(theta, log_sigma2, log_sigma2.exp())
    torch.testing.assert_close(by_theta, theta / second_moment)
    torch.testing.assert_close(by_log_sigma2, -0.5 * theta**2 / second_moment)
