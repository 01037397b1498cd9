"""Multiplicative Gaussian noise: mean 1, variance p / (1 - p), and a short training."""

import pytest
import torch
from tests.trained import below
from torch import nn

from vbdrop.methods import GaussianNoise
from vbdrop.methods.gaussian_noise import MultiplicativeNoise


@pytest.mark.parametrize(("rate", "alpha"), [(0.2, 0.25), (0.5, 1.0)])
def test_the_noise_has_mean_1_and_the_variance_of_the_rate(rate, alpha):
    n = 200_000
    noisy = MultiplicativeNoise(rate)(torch.full((n,), 3.0)) / 3
    assert noisy.mean().item() == pytest.approx(1.0, abs=5 * (alpha / n) ** 0.5)
    assert noisy.var().item() == pytest.approx(alpha, rel=5 * (2 / n) ** 0.5)


def test_each_example_and_value_has_its_own_noise():
    noisy = MultiplicativeNoise(0.5)(torch.ones(4, 5))
    assert noisy.unique().numel() == 20


def test_the_inputs_have_their_own_rate():
    model = GaussianNoise(rate=0.5, input_rate=0.0).build(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)))
    assert [layer.gate.alpha for layer in model] == [0.0, 1.0]


@pytest.mark.trained
def test_it_learns(task):
    method = GaussianNoise(rate=0.2, input_rate=0.1)
    below(20, task.error(method.finish(task.fit(method, epochs=10))), mean=9.96, sd=0.8)
