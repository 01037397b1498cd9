"""The compiled kernels against the plain formulas in float64, and the way without them."""

import math
import threading

import pytest
import torch
from scipy.stats import kstest
from torch._subclasses.fake_tensor import FakeTensorMode

from vbdrop.functional import MatrixProduct, noisy_weights_reference
from vbdrop.kernels import binding, kl_sum, noisy_product, noisy_weights
from vbdrop.priors import Hierarchical

TAILS = [(-30.0, 10.0), (-12.0, 2.0)]


@pytest.fixture(autouse=True)
def _kernels(switched_on):
    """Every test here is one of the kernels."""


def tensors(low, high, n=70_001):
    theta = torch.randn(n) * 0.1
    theta[:3] = torch.tensor([0.0, 1e-19, 3.0])
    return theta, torch.empty(n).uniform_(low, high)


def drawn(n):
    """The noise that sampling draws: where the mean is 0 and the variance 1, that is the sample."""
    return binding.perturbed(torch.zeros(n), torch.ones(n), None)[0]


def hierarchical_kl(theta, log_sigma2, scale=1.0, need_gradients=False):
    total, *gradients = binding.kl("vbdrop_kl", theta, log_sigma2, scale, need_gradients=need_gradients)
    return 0.5 * total, *gradients


@pytest.mark.parametrize(("low", "high"), TAILS)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_kl_and_its_gradient_are_those_of_the_formula(low, high, threads):
    torch.set_num_threads(threads)
    theta, log_sigma2 = tensors(low, high)
    wide = theta.double().requires_grad_(), log_sigma2.double().requires_grad_()
    exact = Hierarchical().kl(*wide).sum()
    gradients = torch.autograd.grad(exact, wide)
    value, *found = hierarchical_kl(theta, log_sigma2, 0.5, need_gradients=True)
    assert value == pytest.approx(exact.item(), rel=1e-6)
    assert hierarchical_kl(theta, log_sigma2)[0] == value
    for ours, true in zip(found, gradients, strict=True):
        torch.testing.assert_close(ours.double(), 0.5 * true, rtol=2e-6, atol=1e-30)
    torch.set_num_threads(1)


def test_each_weight_alone_has_its_kl_to_float32_accuracy():
    log_alpha = torch.linspace(-12, 12, 97)
    for value in log_alpha:
        ours, *_ = hierarchical_kl(torch.ones(1), value.view(1))
        exact = 0.5 * torch.nn.functional.softplus(-value.double())
        assert abs(ours - exact.item()) <= 1e-6 * exact.item()


@pytest.mark.parametrize("log_alpha", [-5.0, -2.0, 0.3, 3.0])
def test_a_long_sum_of_equal_terms_is_as_accurate_as_one(log_alpha):
    """Where every rounding goes the same way, a float32 sum of thousands would be off by several 1e-6."""
    n = 266_001
    ours, *_ = hierarchical_kl(torch.ones(n), torch.full((n,), log_alpha))
    rate = torch.tensor(log_alpha).double()  # as rounded to float32
    assert ours == pytest.approx(n * 0.5 * torch.nn.functional.softplus(-rate).item(), rel=1e-6)


def test_the_posterior_is_exponential_and_mask():
    theta, log_sigma2 = tensors(-30, 10)
    weight, sigma2 = binding.posterior(theta, log_sigma2, limit=20.0)
    torch.testing.assert_close(sigma2.double(), log_sigma2.double().exp(), rtol=2e-7, atol=0)
    assert torch.equal(weight, torch.where(sigma2 < 20.0 * theta * theta, theta, torch.zeros(())))


def test_a_sample_and_its_derivative_by_the_variance():
    mean, variance, noise = torch.randn(999), torch.rand(999), torch.randn(999)
    variance[:5] = 0.0
    given = noise.clone()
    out, slope = binding.perturbed(mean, variance, given)
    assert torch.equal(given, noise)
    torch.testing.assert_close(out, mean + variance.sqrt() * noise)
    torch.testing.assert_close(slope[5:], (0.5 * noise / variance.sqrt())[5:])
    assert (slope[:5] == 0).all()


def test_what_is_not_a_number_is_not_one_in_the_kl_either():
    theta, log_sigma2 = tensors(-12, 2, n=5000)
    theta[1234] = float("nan")
    assert math.isnan(hierarchical_kl(theta, log_sigma2)[0])


@pytest.mark.parametrize("n", [1, 31, 4096, 70_001])
def test_noise_is_ruled_by_the_seed_and_not_by_the_threads(n):
    draws = []
    for threads, seed in ((1, 0), (2, 0), (1, 1)):
        torch.set_num_threads(threads)
        torch.manual_seed(seed)
        draws.append(drawn(n))
    torch.set_num_threads(1)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(drawn(n), draws[2])


def test_noise_is_standard_normal_and_independent():
    """Two million numbers: the distribution by Kolmogorov and Smirnov, the rest within 5 standard errors."""
    torch.manual_seed(3)
    n = 2_000_000
    z = drawn(n).double()
    assert kstest(z.numpy(), "norm").pvalue > 1e-4
    for moment, (mean, variance) in enumerate([(0, 1), (1, 2), (0, 15), (3, 96)], start=1):
        assert abs((z**moment).mean().item() - mean) < 5 * math.sqrt(variance / n)
    assert 4.5 < z.abs().max() < 7
    for lag in (1, 2, 8, 16, 32, 4096, 8192):  # neighbours, lanes, halves of a pair, blocks
        for a, b in ((z[:-lag], z[lag:]), (z[:-lag].square() - 1, z[lag:].square() - 1)):
            assert abs((a * b).mean().item()) < 5 * (a * b).std().item() / math.sqrt(n)


def test_two_draws_have_nothing_in_common():
    torch.manual_seed(4)
    a, b = drawn(100_000), drawn(100_000)
    assert abs((a * b).mean().item()) < 5 / math.sqrt(100_000)


@pytest.mark.parametrize("threshold", [None, 3.0])
def test_a_layer_with_kernels_is_the_layer_without(threshold):
    x, bias, noise = torch.randn(7, 33), torch.randn(20), torch.randn(7, 20)
    theta, log_sigma2 = torch.randn(20, 33) * 0.1, torch.empty(20, 33).uniform_(-12, 2)
    results = []
    for function in (noisy_weights, noisy_weights_reference):
        leaves = [t.clone().requires_grad_() for t in (x, theta, log_sigma2, bias)]
        out = function(*leaves, MatrixProduct(), threshold, noise)
        loss = out.square().sum() + kl_sum(leaves[1], leaves[2], Hierarchical())
        results.append([out.detach(), *torch.autograd.grad(loss, leaves)])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=2e-5, atol=2e-5)


def test_what_torch_would_broadcast_is_not_read_beyond_its_end():
    noise, zeros, ones = torch.ones(1, 2), torch.zeros(2, 4), torch.ones(2, 4)
    shared_noise = noisy_product(torch.ones(5000, 4), zeros, ones, None, MatrixProduct(), noise)
    torch.testing.assert_close(shared_noise, torch.full((5000, 2), 2.0))
    shared = kl_sum(torch.ones(5000), torch.zeros(1), Hierarchical())
    torch.testing.assert_close(shared, kl_sum(torch.ones(5000), torch.zeros(5000), Hierarchical()))


def test_shapes_can_be_had_of_fake_tensors():
    with FakeTensorMode():
        out = noisy_weights(torch.ones(5, 4), torch.ones(2, 4), torch.zeros(2, 4), None, MatrixProduct(), 3.0)
        assert out.shape == (5, 2)


def test_scratch_space_is_kept_for_the_next_call_of_the_thread_unless_it_is_large(monkeypatch):
    monkeypatch.setattr(binding, "LARGEST_KEPT", 1000)
    monkeypatch.setattr(binding, "_kept", threading.local())
    first = binding._scratch(600)
    assert binding._scratch(500) is first
    assert binding._scratch(2000).numel() == 2000
    assert binding._scratch(600) is first, "the large one was not kept"
    assert binding._scratch(1000).numel() == 1000
    others = []
    thread = threading.Thread(target=lambda: others.append(binding._scratch(500)))
    thread.start()
    thread.join()
    assert others[0] is not binding._scratch(500), "another thread may be computing"
