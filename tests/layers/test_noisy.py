import pytest
import torch
from torch import nn

from vbdrop.layers import NoisyTensor, Rates, Units, Weights
from vbdrop.layers.noisy import kl_of
from vbdrop.priors import PRIORS, Hierarchical, LogUniformCubic, log_alpha_of

PERS = ["weight", "unit", "layer"]


def full_log_alpha(layer):
    """log_alpha of every weight of a grouped convolution, written out one weight at a time."""
    per, log_alpha, full = layer.noise.per, layer.log_alpha.detach(), torch.empty_like(layer.weight)
    outputs, inputs = layer.weight.shape[:2]
    for o in range(outputs):
        for i in range(inputs):
            channel = (o // (outputs // layer.groups)) * inputs + i  # the input channel that this weight sees
            full[o, i] = log_alpha[o, i] if per == "weight" else log_alpha[channel] if per == "unit" else log_alpha
    return full


@pytest.mark.parametrize("per", PERS)
def test_the_log_alpha_of_every_weight_of_a_grouped_convolution(randomised, per):
    layer = randomised(nn.Conv1d(4, 6, 3, groups=2), Rates(per=per))
    (entry,) = layer.variational()
    assert torch.equal(entry.log_alpha_full(), full_log_alpha(layer))
    assert not entry.log_alpha_full().requires_grad


@pytest.mark.parametrize("per", PERS)
def test_a_transposed_convolution_has_its_units_on_the_first_axis(randomised, per):
    layer = randomised(nn.ConvTranspose1d(4, 6, 3, groups=2), Rates(per=per))
    (entry,) = layer.variational()
    rows = layer.log_alpha.detach()
    expected = rows if per == "weight" else rows.view(-1, 1, 1) if per == "unit" else rows
    assert torch.equal(entry.log_alpha_full(), expected.expand_as(layer.weight))


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("per", PERS)
def test_a_shared_rate_is_paid_for_by_every_weight(randomised, per, prior):
    """Value and gradients of the sum over weights, each with its own copy of the rate."""
    layer = randomised(nn.Conv1d(4, 6, 3, groups=2), Rates(per=per, prior=prior)).double()
    (entry,) = layer.variational()
    theta = layer.weight.detach().requires_grad_()
    log_alpha = full_log_alpha(layer).requires_grad_()
    expected = entry.prior.kl(theta, log_alpha + theta.square().log()).sum()
    torch.testing.assert_close(entry.kl(), expected, rtol=1e-10, atol=1e-10)
    by_theta, by_each = torch.autograd.grad(expected, (theta, log_alpha))
    entry.kl().backward()
    by_theta_found = torch.zeros_like(theta) if layer.weight.grad is None else layer.weight.grad
    torch.testing.assert_close(by_theta_found, by_theta, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(layer.log_alpha.grad.sum(), by_each.sum(), rtol=1e-9, atol=1e-9)
    if per == "unit":
        halves = torch.cat([by_each[:3].sum((0, 2)), by_each[3:].sum((0, 2))])
        torch.testing.assert_close(layer.log_alpha.grad, halves, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("prior", ["hierarchical", "log_uniform", "inverse_gamma"])
def test_the_kl_of_a_variance_a_weight(randomised, prior):
    layer = randomised(nn.Linear(4, 6), Weights(prior=prior)).double()
    (entry,) = layer.variational()
    expected = entry.prior.kl(layer.weight, layer.log_sigma2).sum()
    torch.testing.assert_close(entry.kl(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mode", [Weights(), Units(), Rates()], ids=str)
def test_the_kl_reaches_the_rates_only_through_the_tensor_it_returns(randomised, mode):
    layer = randomised(nn.Linear(4, 6), mode, outputs=False)
    module = layer.gate if isinstance(mode, Units) else layer
    (entry,) = module.variational()
    kl = entry.kl()
    nll = layer(torch.ones(2, 4)).sum()
    alone = torch.autograd.grad(nll, layer.weight, retain_graph=True)[0]
    assert entry.rate.grad is None
    torch.testing.assert_close(torch.autograd.grad(nll + 0 * kl, layer.weight)[0], alone)


def test_the_rates_of_a_variance_a_weight(randomised):
    layer = randomised(nn.Linear(4, 6), Weights(threshold=1.0))
    (entry,) = layer.variational()
    torch.testing.assert_close(entry.log_alpha_full(), log_alpha_of(layer.weight, layer.log_sigma2).detach())
    assert entry.rate is layer.log_sigma2
    assert torch.equal(entry.dead(), entry.log_alpha_full() >= 1.0)
    for threshold in (-2.0, 0.5, 4.0):
        assert torch.equal(entry.dead(threshold), entry.log_alpha_full() >= threshold)
    assert not entry.dead(1e6).any()
    assert entry.dead(-1e6).all()


@pytest.mark.parametrize("threshold", [None, -100.0, 0.0])
def test_rates_have_no_dead_weights_at_any_threshold(randomised, threshold):
    layer = randomised(nn.Linear(4, 6), Rates(per="weight"))
    (entry,) = layer.variational()
    assert entry.rate is layer.log_alpha
    assert torch.equal(entry.dead(threshold), torch.zeros(6, 4, dtype=torch.bool))


def test_shared_rates_with_a_threshold_of_their_own_die_together():
    rate = nn.Parameter(torch.tensor([0.0, 5.0]))
    entry = NoisyTensor("weight", torch.ones(3, 2), Hierarchical(), 3.0, log_alpha=rate)
    assert torch.equal(entry.dead(), torch.tensor([False, True]).expand(3, 2))
    assert torch.equal(entry.dead(6.0), torch.zeros(3, 2, dtype=torch.bool))


def test_a_rate_beyond_what_the_prior_allows_counts_as_the_bound():
    rate = nn.Parameter(torch.tensor([-1.0, 2.0]))
    entry = NoisyTensor("weight", torch.ones(2), LogUniformCubic(), None, log_alpha=rate)
    assert entry.log_alpha_full().tolist() == [-1.0, 0.0]
    assert entry.kl().item() == pytest.approx(LogUniformCubic().kl_at(torch.tensor([-1.0, 0.0])).sum().item(), abs=1e-6)


def test_means_in_half_precision_are_judged_and_penalised_in_float32(randomised):
    layer = randomised(nn.Linear(4, 6), Weights(threshold=1.0)).to(torch.bfloat16)
    (entry,) = layer.variational()
    assert entry.kl().dtype == entry.log_alpha_full().dtype == torch.float32
    assert torch.equal(entry.dead(), log_alpha_of(layer.weight.float(), layer.log_sigma2) >= 1.0)


def test_a_tensor_without_a_rate_is_an_error():
    with pytest.raises(TypeError, match="'weight' has neither log_sigma2 nor log_alpha"):
        _ = NoisyTensor("weight", torch.ones(2), Hierarchical(), None).rate


@pytest.mark.parametrize("mode", [Weights(), Units(), Rates("unit"), Rates("unit", prior="inverse_gamma")], ids=str)
@pytest.mark.parametrize("factor", [0.5, torch.tensor([0.0, 1.0, 2.0, 3.0])], ids=["number", "tensor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_factor_multiplies_the_kl_of_each_weight(randomised, mode, factor, dtype):
    """In value and gradient; a tensor along the inputs."""
    layer = randomised(nn.Linear(4, 6), mode, outputs=False).to(dtype)
    module = layer.gate if isinstance(mode, Units) else layer
    if isinstance(factor, torch.Tensor):
        module.register_buffer("kl_factor", factor.to(dtype))
    else:
        module.kl_factor = factor
    (entry,) = module.variational()
    log_sigma2 = entry.log_sigma2
    if log_sigma2 is None:
        log_sigma2 = entry.expand(entry.rate) + entry.mean.square().log()
    each = entry.prior.kl(entry.mean, log_sigma2)
    expected = (each * (factor.to(dtype) if isinstance(factor, torch.Tensor) else factor)).sum()
    torch.testing.assert_close(entry.kl(), expected, rtol=1e-5, atol=1e-6)
    leaves = list(module.parameters(recurse=False))
    found = torch.autograd.grad(entry.kl(), leaves, materialize_grads=True, allow_unused=True)
    true = torch.autograd.grad(expected, leaves, materialize_grads=True, allow_unused=True)
    torch.testing.assert_close(found, true, rtol=1e-4, atol=1e-5)


def test_a_factor_leaves_a_layer_that_becomes_plain(randomised):
    layer = randomised(nn.Linear(4, 6), Weights())
    layer.register_buffer("kl_factor", torch.ones(4))
    layer.make_plain_()
    assert list(layer.state_dict()) == ["weight", "bias"]


def test_nothing_has_no_kl():
    with pytest.raises(ValueError, match="`entries` must hold at least one noisy tensor; got none"):
        kl_of([])
