import pytest
import torch

from vbdrop.functional import kl_and_gradients_reference, kl_sum_reference
from vbdrop.priors import PRIORS, Hierarchical


@pytest.fixture(params=PRIORS)
def prior(request):
    return PRIORS[request.param]()


def weights(dtype=torch.float64):
    theta, log_sigma2 = torch.randn(7, 5, dtype=dtype), torch.empty(7, 5, dtype=dtype).uniform_(-12, 4)
    return theta.requires_grad_(), log_sigma2.requires_grad_()


def test_it_is_a_sum_and_not_a_mean():
    one = kl_sum_reference(torch.ones(1), torch.zeros(1), Hierarchical()).item()
    assert kl_sum_reference(torch.ones(10), torch.zeros(10), Hierarchical()).item() == pytest.approx(10 * one)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("factor", [1.0, 0.25, torch.linspace(0.0, 2.0, 5)], ids=["one", "number", "tensor"])
def test_value_and_gradients_of_one_pass_are_those_of_autograd(prior, factor, dtype, tolerance):
    leaves = weights(dtype)
    factor = factor.to(dtype) if isinstance(factor, torch.Tensor) else factor
    expected = kl_sum_reference(*leaves, prior, factor)
    by_autograd = torch.autograd.grad(-3 * expected, leaves)
    value, *gradients = kl_and_gradients_reference(*leaves, prior, factor, scale=-3.0)
    torch.testing.assert_close(value, expected.detach(), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(gradients, list(by_autograd), rtol=10 * tolerance, atol=tolerance)
    assert not any(tensor.requires_grad for tensor in (value, *gradients))


def test_a_factor_multiplies_each_weights_own_kl(prior):
    theta, log_sigma2 = weights()
    factor = torch.arange(7.0, dtype=torch.float64).unsqueeze(1)
    rows = [kl_sum_reference(t, s, prior) for t, s in zip(theta, log_sigma2, strict=True)]
    expected = sum(index * row for index, row in enumerate(rows))
    torch.testing.assert_close(kl_sum_reference(theta, log_sigma2, prior, factor), expected)


def test_means_in_half_precision_get_a_kl_in_float32(prior):
    theta, log_sigma2 = weights(torch.float32)
    value, by_theta, by_log_sigma2 = kl_and_gradients_reference(theta.detach().bfloat16(), log_sigma2, prior)
    assert (value.dtype, by_theta.dtype, by_log_sigma2.dtype) == (torch.float32, torch.bfloat16, torch.float32)


def test_float32_tails_have_finite_values_and_gradients(prior):
    theta, log_sigma2 = torch.cartesian_prod(
        torch.tensor([0.0, 1e-25, -1e-3, 10.0]), torch.linspace(-30, 10, 41)
    ).T.contiguous()
    assert all(found.isfinite().all() for found in kl_and_gradients_reference(theta, log_sigma2, prior))
