"""Variational dropout: the two kinds of noise and of penalty, and rates that move."""

import pytest
import torch
from tests.trained import above, below
from torch import nn

import vbdrop
from vbdrop.methods import VariationalDropout
from vbdrop.methods.shared.input_modules import gates_of
from vbdrop.methods.variational_dropout import InputNoise
from vbdrop.priors import as_prior
from vbdrop.train.method import Batch, Step

C1, C2, C3 = 1.16145124, -1.50204118, 0.58629921  # as printed by Kingma et al.
STEP = Step(index=0, steps=10, epoch=0.0, epochs=1, n_train=100)


def cubic(alpha: float) -> float:
    return -0.5 * torch.tensor(alpha).log().item() - sum(c * (alpha**k - 1) for k, c in enumerate((C1, C2, C3), 1))


@pytest.mark.parametrize(("shared", "parameters"), [(True, 1), (False, 7)])
def test_type_a_counts_every_unit_once(shared, parameters):
    noise = InputNoise(7, -1, shared=shared, rate=0.2, prior=as_prior("log_uniform_cubic"))
    assert noise.log_alpha.numel() == parameters
    assert noise.kl().item() == pytest.approx(7 * cubic(0.25), rel=1e-5)


def test_type_b_counts_every_weight():
    model = VariationalDropout(per="layer", input_rate=0.2).build(nn.Linear(7, 3))
    assert vbdrop.kl(model).item() == pytest.approx(21 * cubic(0.25), rel=1e-5)


def test_type_a_multiplies_a_channel_by_noise_of_its_own_variance():
    noise = InputNoise(2, -3, shared=False, rate=0.5, prior=as_prior("log_uniform"))
    with torch.no_grad():
        noise.log_alpha.copy_(torch.tensor([0.0, -4.0]))
        values = noise(torch.ones(2_000, 2, 5, 5))
    for channel, alpha in enumerate((1.0, torch.tensor(-4.0).exp().item())):
        assert values[:, channel].var().item() == pytest.approx(alpha, rel=5 * (2 / 50_000) ** 0.5)


def test_the_cubic_keeps_alpha_at_most_1_and_the_sigmoid_does_not():
    for prior, variance in (("log_uniform_cubic", 1.0), ("log_uniform", 9.0)):
        noise = InputNoise(1, -1, shared=True, rate=0.9, prior=as_prior(prior))
        values = noise(torch.ones(50_000, 1)).detach()
        assert values.var().item() == pytest.approx(variance, rel=5 * (2 / 50_000) ** 0.5)


def test_the_loss_is_the_cross_entropy_and_the_weighted_kl():
    batch = Batch(torch.zeros(3, 4), torch.tensor([0, 1, 0]))
    for noise in ("a", "b"):
        losses = []
        for weight in (0.0, 2.0):
            method = VariationalDropout(noise=noise, kl_weight=weight, input_rate=0.2)
            torch.manual_seed(0)
            losses.append(method.loss(method.build(nn.Linear(4, 2, bias=False)), batch, STEP).item())
        count = {"a": 4, "b": 8}[noise]
        assert losses[1] - losses[0] == pytest.approx(2 * count * cubic(0.25) / 100, rel=1e-4)


@pytest.mark.trained
@pytest.mark.parametrize("noise", ["a", "b"])
def test_more_penalty_gives_larger_rates(task, noise):
    rates: list[float] = []

    def watch(model, step):
        values = [p for key, p in model.named_parameters() if key.endswith("log_alpha")]
        rates.append(torch.cat([v.detach().flatten() for v in values]).mean().item())

    means = []
    for weight in (0.0, 3.0):
        method = VariationalDropout(noise=noise, kl_weight=weight, rate=0.3, approximation="sigmoid", per="unit")
        model = task.fit(method, epochs=6, watch=watch)
        means.append(rates[-1])
        below(30, task.error(method.finish(model)), mean=14.4, sd=2.2)
    above(0.1, means[1] - means[0], mean=0.545, sd=0.0084)


def test_a_weight_has_no_alpha_of_its_own_in_type_a():
    with pytest.raises(ValueError, match="`per` of VariationalDropout must be one of 'layer', 'unit'; got 'weight'"):
        VariationalDropout(noise="a", per="weight")


def test_type_a_puts_its_noise_before_every_layer():
    model = VariationalDropout(noise="a").build(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
    assert [torch.sigmoid(gate.log_alpha).item() for _, _, gate in gates_of(model)] == pytest.approx([0.2, 0.5])
