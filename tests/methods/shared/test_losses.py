"""The warm-up is in shares of the run, and the KL is divided by the number of examples."""

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.methods.shared.losses import cross_entropy, negative_elbo, squared_weights, variational_loss, weighted_loss
from vbdrop.train.method import Batch, Step

BATCH = Batch(torch.zeros(3, 4), torch.tensor([0, 1, 0]))


@pytest.mark.parametrize(("epoch", "share"), [(0.0, 0.0), (9.9, 0.0), (15.0, 0.5), (20.0, 1.0), (39.0, 1.0)])
def test_the_kl_comes_in_over_a_share_of_the_run(epoch, share):
    model = nn.Linear(4, 2)
    vbdrop.convert_(model, vbdrop.Weights())
    step = Step(index=0, steps=400, epoch=epoch, epochs=40, n_train=50)
    torch.manual_seed(1)
    loss = variational_loss(model, cross_entropy(model, BATCH), step, weight=3.0, hold=0.25, ramp=0.25)
    torch.manual_seed(1)
    expected = cross_entropy(model, BATCH) + share * 3.0 * vbdrop.kl(model) / 50
    torch.testing.assert_close(loss, expected)


def test_each_module_has_its_own_factor():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    vbdrop.convert_(model, vbdrop.Weights(), vbdrop.Units())
    factors = {model[0]: 2.0, model[0].gate: 0.0, model[1]: 0.5, model[1].gate: 7.0}
    expected = sum(factor * entry.kl().item() for module, factor in factors.items() for entry in module.variational())
    for epoch, share in ((0.0, 0.0), (15.0, 0.5), (39.0, 1.0)):
        step = Step(index=0, steps=400, epoch=epoch, epochs=40, n_train=50)
        loss = weighted_loss(model, torch.tensor(0.25), step, factors.__getitem__, weight=3.0, hold=0.25, ramp=0.25)
        assert loss.item() == pytest.approx(0.25 + share * 3.0 * expected / 50, rel=1e-5)


def test_the_bound_is_that_of_the_public_objective():
    model = nn.Linear(4, 2)
    vbdrop.convert_(model, vbdrop.Weights())
    elbo = vbdrop.ELBO(model, n_train=50, kl_weight=2.0)
    nll = torch.tensor(0.7)
    torch.testing.assert_close(negative_elbo(nll, vbdrop.kl(model), 50, 2.0), elbo(nll))


def test_squared_weights_are_those_of_layers_without_the_biases():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    expected = sum(model[index].weight.square().sum() for index in (0, 2))
    torch.testing.assert_close(squared_weights(model), expected)
