"""What every prior of the table must do, without a line of its own."""

import copy
import dataclasses
import pickle

import pytest
import torch

from vbdrop.priors import PRIORS

TAILS = torch.cartesian_prod(
    torch.tensor([0.0, -0.0, 1e-30, -1e-20, 1e-8, -1e-3, 1.0, -30.0]), torch.linspace(-30, 10, 41)
).T


@pytest.fixture(params=PRIORS)
def prior(request):
    return PRIORS[request.param]()


def weights(n=300, dtype=torch.float64):
    theta = torch.randn(n, dtype=dtype) * torch.logspace(-3, 1, n, dtype=dtype)
    return theta.requires_grad_(), torch.empty(n, dtype=dtype).uniform_(-14, 6).requires_grad_()


def gradients(prior, theta, log_sigma2):
    return prior.kl_gradients(theta, log_sigma2, log_sigma2.exp())


def total(prior, theta, log_sigma2):
    return prior.kl_sum(theta, log_sigma2, log_sigma2.exp())


def test_the_closed_gradients_are_those_of_autograd(prior):
    theta, log_sigma2 = weights()
    by_autograd = torch.autograd.grad(prior.kl(theta, log_sigma2).sum(), (theta, log_sigma2))
    closed = gradients(prior, theta.detach(), log_sigma2.detach())
    torch.testing.assert_close(closed, by_autograd, rtol=1e-9, atol=1e-10)


def test_autograd_agrees_with_finite_differences(prior):
    theta = torch.tensor([0.7, -1.3, 2.0], dtype=torch.float64, requires_grad=True)
    log_sigma2 = torch.tensor([-2.0, -1.0, 1.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(prior.kl, (theta, log_sigma2))


def test_value_and_gradients_are_finite_in_float32_tails(prior):
    """For log_sigma2 in [-30, 10] and any theta, also one of exactly zero; by autograd, as in compiled code, too."""
    theta, log_sigma2 = TAILS[0].clone().requires_grad_(), TAILS[1].clone().requires_grad_()
    value = prior.kl(theta, log_sigma2)
    by_autograd = torch.autograd.grad(value.sum(), (theta, log_sigma2))
    assert value.isfinite().all()
    assert all(g.isfinite().all() for g in by_autograd)
    assert all(g.isfinite().all() for g in gradients(prior, *TAILS))


def test_the_sum_is_the_sum(prior):
    theta, log_sigma2 = (p.detach() for p in weights())
    torch.testing.assert_close(total(prior, theta, log_sigma2), prior.kl(theta, log_sigma2).sum(), rtol=1e-12, atol=0)
    narrow = total(prior, theta.float(), log_sigma2.float())
    torch.testing.assert_close(narrow.double(), total(prior, theta, log_sigma2), rtol=1e-5, atol=0)


def test_no_penalty_is_negative_and_more_noise_is_cheaper_for_scale_free_priors(prior):
    assert (prior.kl(*TAILS) >= -1e-6).all()
    if prior.scale_free:
        assert (gradients(prior, *TAILS)[1] <= 0).all()


def test_scale_free_means_that_alpha_alone_matters(prior):
    log_alpha = torch.linspace(-8, 8, 33, dtype=torch.float64)
    thetas = [torch.full_like(log_alpha, theta) for theta in (-5.0, 0.02)]
    large, small = (prior.kl(theta, log_alpha + theta.square().log()) for theta in thetas)
    assert torch.allclose(large, small, rtol=1e-9, atol=1e-12) is prior.scale_free
    if prior.scale_free:
        torch.testing.assert_close(prior.kl_at(log_alpha), small, rtol=1e-9, atol=1e-12)
    else:
        with pytest.raises(TypeError, match="use `kl`"):
            prior.kl_at(log_alpha)


def test_the_sign_of_a_weight_does_not_matter(prior):
    theta, log_sigma2 = (p.detach() for p in weights())
    assert torch.equal(prior.kl(theta, log_sigma2), prior.kl(-theta, log_sigma2))
    assert torch.equal(gradients(prior, theta, log_sigma2)[0], -gradients(prior, -theta, log_sigma2)[0])


def test_the_gradients_are_tensors_that_may_be_written_into(prior):
    theta, log_sigma2 = (p.detach() for p in weights())
    before = theta.clone(), log_sigma2.clone()
    by_theta, by_log_sigma2 = gradients(prior, theta, log_sigma2)
    kept = by_log_sigma2.clone()
    by_theta.zero_()
    assert torch.equal(by_log_sigma2, kept)
    by_log_sigma2.zero_()
    total(prior, theta, log_sigma2)
    assert torch.equal(theta, before[0])
    assert torch.equal(log_sigma2, before[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype_are_kept(prior, dtype):
    theta, log_sigma2 = torch.randn(2, 3, dtype=dtype), torch.randn(2, 3, dtype=dtype)
    results = prior.kl(theta, log_sigma2), *gradients(prior, theta, log_sigma2)
    assert [(r.shape, r.dtype) for r in results] == [((2, 3), dtype)] * 3
    assert total(prior, theta, log_sigma2).shape == ()


def test_a_prior_is_a_small_immutable_value(prior):
    assert pickle.loads(pickle.dumps(prior)) == prior == copy.deepcopy(prior)
    assert len({prior, copy.deepcopy(prior)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        prior.shape = 2.0
