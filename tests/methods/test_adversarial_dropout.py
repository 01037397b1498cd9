"""Adversarial dropout: the flips, both targets, the rise of lambda, and a short training."""

import math

import pytest
import torch
from tests.trained import below
from torch import nn

from vbdrop.methods import AdversarialDropout
from vbdrop.methods.adversarial_dropout import adversarial_mask, rescaled
from vbdrop.train.method import Batch, Step


def test_exactly_the_allowed_flips_are_made_and_each_increases_the_divergence():
    base = torch.bernoulli(torch.full((200, 40), 0.5))
    slope = torch.randn(200, 40)
    mask = adversarial_mask(base, slope, flips=6)
    change = mask - base
    assert (change.abs().sum(1) == 6).all()
    assert (change * slope >= 0).all()
    made = (change * slope).sum(1)
    best = torch.where(base == 0, slope, -slope).clamp_min(0).topk(6).values.sum(1)
    torch.testing.assert_close(made, best)


def test_a_flip_without_gain_is_not_made():
    base = torch.tensor([[1.0, 0.0, 1.0]])
    assert torch.equal(adversarial_mask(base, torch.tensor([[2.0, -2.0, 0.0]]), flips=3), base)
    assert torch.equal(adversarial_mask(base, torch.tensor([[-2.0, 2.0, -1.0]]), flips=3), 1 - base)
    assert torch.equal(adversarial_mask(base, torch.tensor([[-2.0, 2.0, -1.0]]), flips=0), base)


def test_equal_slopes_at_the_limit_are_not_flipped():
    assert adversarial_mask(torch.ones(1, 4), torch.tensor([[-3.0, -2.0, -2.0, -1.0]]), flips=2)[0].tolist() == [
        0,
        1,
        1,
        1,
    ]


def test_a_rescaled_mask_has_mean_1_and_an_empty_one_stays_finite():
    mask = torch.tensor([[1.0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]])
    assert rescaled(mask).mean(1).tolist() == [1, 1, 0]


def attack(method: AdversarialDropout) -> tuple[float, float, int]:
    """The mean divergence before and after the attack, and the flips, for a random head."""
    torch.manual_seed(0)
    head, features = nn.Linear(100, 10), torch.rand(64, 100)
    targets = torch.randint(10, (64,))
    sampled, base = (method._sample(features) for _ in range(2))
    logits = head(features * sampled / (1 - method.rate)).detach()
    start = sampled if method.mode == "sadd" else base
    mask = method.attack(head, features, start, targets, logits)
    before, after = (method.divergence(head(features * rescaled(m)), targets, logits).mean() for m in (start, mask))
    return before.item(), after.item(), int((mask != start).sum(1).max())


@pytest.mark.parametrize("mode", ["sadd", "vadd"])
def test_the_attack_raises_the_divergence_with_few_flips(mode):
    before, after, flips = attack(AdversarialDropout(mode=mode, delta=0.05))
    assert flips == 5
    assert after > 1.1 * before > 0


def test_vadd_has_no_slope_at_the_mask_of_its_target():
    method = AdversarialDropout(mode="vadd")
    head = nn.Linear(20, 5)
    features = torch.rand(8, 20, requires_grad=True)
    (slope,) = torch.autograd.grad(
        method.divergence(head(features), torch.zeros(8), head(features).detach()).sum(), features
    )
    assert slope.abs().max() < 1e-6


def test_lambda_rises_over_its_share_of_the_run():
    method = AdversarialDropout(weight=2.0, ramp=0.5)

    def at(index: int) -> float:
        return method.strength(Step(index, 100, 0.0, 1, 1))

    assert at(0) == pytest.approx(2 * math.exp(-5))
    assert at(25) == pytest.approx(2 * math.exp(-1.25))
    assert at(50) == at(99) == 2.0


@pytest.mark.trained
@pytest.mark.parametrize("mode", ["sadd", "vadd"])
def test_it_learns(task, mode):
    method = AdversarialDropout(mode=mode, rate=0.2, input_rate=0.1)
    below(25, task.error(method.finish(task.fit(method, epochs=8))), mean=11.5, sd=0.95)


def test_the_adversarial_term_reaches_the_layers_before_the_last(task, a_step):
    method = AdversarialDropout(rate=0.3)
    gradients = []
    for weight in (0.0, 1.0):
        model = AdversarialDropout(rate=0.3, weight=weight).build(task.network())
        torch.manual_seed(0)
        method = AdversarialDropout(rate=0.3, weight=weight)
        method.loss(model, Batch(task.train.inputs[:20], task.train.targets[:20]), a_step).backward()
        gradients.append(model.hidden[0].weight.grad)
    assert not torch.allclose(*gradients)


def test_a_network_whose_last_layer_does_not_give_its_output_is_refused(a_step):
    model = AdversarialDropout().build(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), nn.Tanh()))
    with pytest.raises(ValueError, match="`model` must return the output of its last linear layer"):
        AdversarialDropout().loss(model, Batch(torch.rand(2, 4), torch.tensor([0, 1])), a_step)
    with pytest.raises(ValueError, match="`model` must end with a linear layer"):
        AdversarialDropout().build(nn.Conv2d(1, 2, 3))


def test_the_second_term_comes_in_over_most_of_the_run():
    """At full strength while the network is still near chance, it keeps it there."""
    method = AdversarialDropout()
    strengths = [
        method.strength(Step(index=index, steps=100, epoch=0.0, epochs=1, n_train=5)) for index in (0, 25, 50, 80, 99)
    ]
    assert strengths[0] < 0.01
    assert 0.05 < strengths[1] < 0.15
    assert 0.4 < strengths[2] < 0.55
    assert strengths[3:] == [1.0, 1.0]
