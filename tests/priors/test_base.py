import math

import pytest
import torch
from torch import Tensor

from vbdrop.priors import Prior, log_alpha_of


class StandardNormal(Prior):
    """A prior as a user would write it: N(0, 1), which knows theta apart from alpha."""

    def kl(self, theta: Tensor, log_sigma2: Tensor) -> Tensor:
        return 0.5 * (theta.square() + log_sigma2.exp() - log_sigma2 - 1)

    def kl_gradients(self, theta: Tensor, log_sigma2: Tensor, sigma2: Tensor) -> tuple[Tensor, Tensor]:
        return theta.clone(), 0.5 * (sigma2 - 1)


@pytest.fixture
def flushed_subnormals():
    """The arithmetic of a processor that takes subnormal numbers for zero."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("theta", [3.0, -0.02, 1e-12])
def test_log_alpha_is_the_log_of_variance_over_squared_mean(theta):
    log_sigma2 = torch.tensor(-4.0, dtype=torch.float64)
    alpha = log_alpha_of(torch.tensor(theta, dtype=torch.float64), log_sigma2).exp()
    assert alpha.item() == pytest.approx(math.exp(-4.0) / theta**2, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_log_alpha_and_its_gradient_are_finite_at_zero(dtype):
    theta = torch.tensor([0.0, 1e-30, -1e-30], dtype=dtype, requires_grad=True)
    log_alpha = log_alpha_of(theta, torch.full((3,), -30.0, dtype=dtype))
    log_alpha.sum().backward()
    assert log_alpha.isfinite().all()
    assert theta.grad.isfinite().all()
    assert (log_alpha > 50).all(), "a mean of nothing is all noise"


def test_the_naive_log_alpha_is_not_finite_at_zero():
    theta = torch.zeros(1, requires_grad=True)
    naive = torch.tensor([-30.0]) - torch.log(theta**2)
    naive.backward()
    assert not naive.isfinite().any()
    assert not theta.grad.isfinite().any()


@pytest.mark.usefixtures("flushed_subnormals")
def test_log_alpha_is_finite_where_subnormal_numbers_are_zero():
    assert log_alpha_of(torch.zeros(1), torch.zeros(1)).isfinite().all()
    assert (torch.zeros(1).clamp_min(1e-38).log() == -math.inf).all(), "what a smaller floor would give"


def test_kl_sum_is_the_sum_unless_a_prior_knows_better():
    theta, log_sigma2 = torch.randn(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    one_by_one = [StandardNormal().kl(t, s).item() for t, s in zip(theta, log_sigma2, strict=True)]
    assert StandardNormal().kl_sum(theta, log_sigma2, log_sigma2.exp()).item() == pytest.approx(
        sum(one_by_one), rel=1e-12
    )


def test_kl_at_needs_a_prior_that_knows_alpha_alone():
    with pytest.raises(TypeError, match="depends on theta"):
        StandardNormal().kl_at(torch.zeros(1))


def test_a_prior_without_its_formulas_is_no_prior():
    with pytest.raises(TypeError, match="kl"):
        Prior()
