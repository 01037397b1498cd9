"""Concrete dropout: the mask and the penalties against numbers by hand, and rates that move."""

import math

import pytest
import torch
from tests.trained import above, below
from torch import nn

from vbdrop.methods import ConcreteDropout
from vbdrop.methods.concrete_dropout import ConcreteNoise, concrete_mask
from vbdrop.train.method import Batch, Step

STEP = Step(index=0, steps=10, epoch=0.0, epochs=1, n_train=50)


@pytest.mark.parametrize(("p", "u", "t"), [(0.1, 0.3, 0.1), (0.5, 0.51, 0.1), (0.3, 0.8, 2 / 3)])
def test_the_mask_is_the_published_one(p, u, t):
    x = (math.log(p) - math.log(1 - p) + math.log(u) - math.log(1 - u)) / t
    mask = concrete_mask(torch.logit(torch.tensor(p, dtype=torch.float64)), torch.tensor(u, dtype=torch.float64), t)
    assert mask.item() == pytest.approx(1 / (1 + math.exp(-x)), rel=1e-9)


def test_a_value_is_dropped_with_the_learned_rate_and_keeps_its_mean():
    noise = ConcreteNoise(1, -1, rate=0.3, temperature=0.1)
    values = noise(torch.ones(200_000, 1)).detach()
    assert (values < 0.5 / 0.7).float().mean().item() == pytest.approx(0.3, abs=0.005)  # 5 standard errors
    assert values.mean().item() == pytest.approx(1.0, abs=0.02)  # the relaxation shifts it a little


def test_a_channel_is_dropped_as_a_whole():
    values = ConcreteNoise(3, -3, rate=0.5, temperature=2 / 3)(torch.ones(8, 3, 4, 4)).detach()
    assert torch.equal(values, values[..., :1, :1].expand_as(values))
    assert values[..., 0, 0].unique().numel() == 24


def test_the_penalty_is_the_published_one():
    layer = nn.Linear(6, 2, bias=False)
    batch = Batch(torch.zeros(3, 6), torch.tensor([0, 1, 0]))
    method = ConcreteDropout(entropy_weight=3.0, length_scale2=0.5, rate=0.2)
    square = layer.weight.square().sum().item()
    negative_entropy = 0.2 * math.log(0.2) + 0.8 * math.log(0.8)
    expected = math.log(2) + (0.5 * square / 0.8 + 3.0 * 6 * negative_entropy) / 50
    assert method.loss(method.build(layer), batch, STEP).item() == pytest.approx(expected, rel=1e-5)


def test_the_entropy_stays_finite_at_the_ends():
    noise = ConcreteNoise(4, -1, rate=0.5, temperature=0.1)
    for logit in (-60.0, 0.0, 60.0):
        nn.init.constant_(noise.logit, logit)
        value = noise.negative_entropy()
        (gradient,) = torch.autograd.grad(value, noise.logit)
        assert gradient.isfinite()
        assert value.item() == pytest.approx(4 * (-math.log(2) if logit == 0 else 0), abs=1e-6)


def test_a_convolution_has_the_spatial_temperature():
    model = ConcreteDropout().build(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)))
    assert [model[0].gate.temperature, model[2].gate.temperature] == [2 / 3, 0.1]
    assert [model[0].gate.units, model[2].gate.units] == [3, 16]


@pytest.mark.trained
def test_more_entropy_gives_larger_rates(task):
    means = []
    for weight in (0.0, 10.0):
        method = ConcreteDropout(entropy_weight=weight)
        model = task.fit(method, epochs=8)
        means.append(sum(m.rate.item() for m in model.modules() if isinstance(m, ConcreteNoise)) / 3)
        below(20, task.error(method.finish(model)), mean=10.4, sd=1.0)
    below(0.1, means[0], mean=0.0554, sd=0.0018)
    above(0.1, means[1], mean=0.131, sd=0.0025)
