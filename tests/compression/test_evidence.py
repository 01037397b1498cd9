import math

import pytest
import torch
from tests.compression.nets import MLP, randomise_
from torch import nn
from torch.distributions import Normal

import vbdrop
from vbdrop.compression import compress
from vbdrop.compression.evidence import LIMIT, evidence_lost, evidence_threshold, lost_nats
from vbdrop.objective import noisy_tensors


@pytest.mark.parametrize("log_alpha", [-5.0, -1.0, 0.0, 2.0, 5.0])
def test_a_weight_costs_the_savage_dickey_ratio(log_alpha):
    theta = torch.tensor(0.7, dtype=torch.float64)
    sigma2 = theta.square() * torch.tensor(log_alpha, dtype=torch.float64).exp()
    gamma = theta.square() + sigma2
    zero = torch.zeros((), dtype=torch.float64)
    ratio = Normal(theta, sigma2.sqrt()).log_prob(zero) - Normal(zero, gamma.sqrt()).log_prob(zero)
    assert float(lost_nats(torch.tensor(log_alpha))) == pytest.approx(-float(ratio), rel=1e-6)


def test_the_ends_are_finite_and_not_negative():
    assert float(lost_nats(torch.tensor(float("inf")))) == 0
    small = lost_nats(torch.linspace(5, 60, 200, dtype=torch.float64))
    assert bool((small >= 0).all())
    assert bool((small.diff() <= 0).all())


@torch.no_grad()
def test_only_what_is_dead_counts_weights_and_gates():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    vbdrop.convert_(model, vbdrop.Weights(), vbdrop.Units())
    model[0].log_sigma2[0] = model[0].weight[0].square().log()
    model[1].gate.log_sigma2[:2] = 0
    lost = evidence_lost(model, -0.5)
    assert lost.nats == pytest.approx(6 * float(lost_nats(torch.zeros(()))), rel=1e-5)
    assert lost.kl == pytest.approx(float(vbdrop.kl(model)))
    assert lost.is_large == (lost.share > LIMIT)
    assert lost.per_example is None
    assert evidence_lost(nn.Linear(2, 2), None) is None


def test_an_elbo_without_a_kl_says_nothing_of_an_example():
    model = nn.Linear(4, 3)
    vbdrop.convert_(model, vbdrop.Weights())
    elbo = vbdrop.ELBO(model, n_train=10, kl_weight=2.0)
    lost = evidence_lost(model, -20.0, elbo)
    assert lost.per_example == pytest.approx(lost.nats / 5)
    elbo.kl_weight = 0.0
    assert evidence_lost(model, -20.0, elbo).per_example is None


@torch.no_grad()
def test_the_figure_and_the_evidence_are_in_the_summary():
    torch.manual_seed(1)
    model = randomise_(MLP())
    vbdrop.convert_(model, vbdrop.Weights())
    x = torch.randn(3, 20)
    model.fc1.log_sigma2[:8] = model.fc1.weight[:8].square().log() - 2  # log_alpha is -2
    elbo = vbdrop.ELBO(model, n_train=50, kl_weight=0.5)
    with pytest.warns(UserWarning, match=r"the cut at log alpha -3\.00 loses .* `evaluate` gave 7 before and 3 after"):
        small = compress(model, x, -3.0, evaluate=lambda net: 7.0 if hasattr(net.fc1, "noise") else 3.0, elbo=elbo)
    summary = small.summary()
    assert summary.evidence.nats > 2.63 * model.fc1.weight[:8].numel()  # and some of the smallest others
    assert summary.evidence.per_example == pytest.approx(summary.evidence.nats / 100)
    assert summary.figures == (7.0, 3.0)
    assert "evaluate: 7 before, 3 now" in str(summary)
    assert "nats per example" in str(summary)
    assert compress(model, x).summary().evidence.nats == 0
    for name, value in (("evaluate", 3), ("elbo", 3)):
        with pytest.raises(TypeError, match=f"`{name}` must be .*; got int"):
            compress(model, x, **{name: value})


@pytest.mark.parametrize("nats", [0.0, 0.5, 3.0, 1e9])
def test_the_threshold_of_an_allowance_spends_it_and_no_more(nats):
    model = nn.Sequential(nn.Linear(20, 15), nn.ReLU(), nn.Linear(15, 5))
    vbdrop.convert_(model, vbdrop.Weights(), vbdrop.Units())
    for _, entry in noisy_tensors(model):
        entry.rate.data.normal_(-5.0, 3.0)
    threshold = evidence_threshold(model, nats)
    assert evidence_lost(model, threshold).nats <= nats
    every = torch.cat([entry.log_alpha_full().flatten() for _, entry in noisy_tensors(model)])
    if (every < threshold).any():
        next_one = every[every < threshold].max().item()
        assert evidence_lost(model, next_one - 1e-4).nats > nats


def test_a_plain_model_has_nothing_to_cut():
    assert evidence_threshold(nn.Linear(3, 2), 1.0) == math.inf
