"""What can be removed, what it is worth, and the plain model without it."""

import math

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.targets.prunable import log_evidence, plain_without, prunables, worth


def make(*modes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    vbdrop.convert_(model, *modes)
    return model


def test_weights_and_gates_can_go_and_rates_cannot():
    assert [found.name for found in prunables(make(vbdrop.Units(), vbdrop.Weights()))] == ["0", "0.gate", "2", "2.gate"]
    assert prunables(make(vbdrop.Rates())) == []


def test_the_evidence_is_the_savage_dickey_ratio():
    """Against the densities themselves: q(0) / p(0) with p = N(0, theta^2 + sigma^2)."""
    theta, log_alpha = 0.7, torch.tensor([-3.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    sigma2 = log_alpha.exp() * theta**2
    q = torch.distributions.Normal(torch.full_like(sigma2, theta), sigma2.sqrt()).log_prob(torch.zeros(()))
    p = torch.distributions.Normal(0.0, (theta**2 + sigma2).sqrt()).log_prob(torch.zeros(()))
    assert torch.allclose(log_evidence(log_alpha), (p - q).log(), rtol=1e-9)


def test_the_order_is_strict_from_one_end_to_the_other():
    values = log_evidence(torch.linspace(-79, 79, 4001, dtype=torch.float64))
    assert bool(values.isfinite().all())
    assert bool((values.diff() < 0).all())
    assert bool(log_evidence(torch.tensor([-1e9, 1e9])).isfinite().all())


def test_what_saves_more_is_worth_less():
    found = prunables(make(vbdrop.Units()))[0]
    values = worth(found, torch.tensor([1.0, 10.0, 1.0, 1.0]), found.alive())
    assert float(values[0] - values[1]) == pytest.approx(math.log(10.0))
    assert values.argmin() == 1


def test_evidence_counts_as_often_as_the_kl():
    found = prunables(make(vbdrop.Units()))[0]
    before = worth(found, torch.ones(4), found.alive())
    found.module.kl_factor = 3.0
    (again, *_) = prunables(found.module)
    assert torch.allclose(worth(again, torch.ones(4), again.alive()) - before, torch.tensor(math.log(3.0)).double())


def test_the_plain_model_has_all_that_was_not_removed():
    model = make(vbdrop.Weights())
    with torch.no_grad():
        model[0].log_sigma2.fill_(9.0)  # dead by their rates
    gone = [torch.zeros(3, 4, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.bool)]
    gone[0][1] = True
    plain = plain_without(model, gone)
    assert (plain[0].weight == 0).equal(gone[0])
    assert torch.equal(plain[0].weight[0], model[0].weight[0])
    assert model[0].log_sigma2.min().item() == 9.0  # it is not changed


def test_what_is_removed_stays_so_whatever_an_optimizer_does():
    model = make(vbdrop.Units())
    found = prunables(model)[0]
    found.remove_(torch.tensor([True, False, False, False]))
    with torch.no_grad():
        found.entry.mean.fill_(1.0)
    assert prunables(model)[0].alive().tolist() == [False, True, True, True]
    assert vbdrop.rates(model)["0.gate"].dead == 1
