"""Soft weight-sharing: the loss, the start of the mixture, and a network of few values in the end."""

import math

import pytest
import torch
from tests.trained import above, below
from torch import nn
from torch.distributions import Gamma

from vbdrop.methods import SoftWeightSharing
from vbdrop.methods.shared.gaussian_mixture import mixture_nll
from vbdrop.methods.soft_weight_sharing import SharedWeights
from vbdrop.train.method import Batch, Step
from vbdrop.train.sparsity import sparsity, weight_layers


def test_the_zero_component_stays_and_the_shares_sum_to_1():
    shared = SharedWeights(nn.Linear(3, 2), components=4, zero_share=0.9)
    nn.init.normal_(shared.share_logits)
    shares = shared.components().log_shares.exp()
    assert shares[0].item() == pytest.approx(0.9)
    assert shares.sum().item() == pytest.approx(1.0)
    assert shared.components().means[0] == 0


def test_the_means_start_evenly_over_the_trained_weights():
    shared = SharedWeights(nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 5)), components=5, zero_share=0.9)
    shared.start_()
    weights = torch.cat([layer.weight.flatten() for layer in shared.network])
    torch.testing.assert_close(shared.means, torch.linspace(weights.min().item(), weights.max().item(), 5))


def test_the_hyper_priors_are_gamma_densities_of_the_precisions():
    shared = SharedWeights(nn.Linear(3, 2), components=1, zero_share=0.9).double()
    values = []
    for log_precision in (2.0, 7.0):
        nn.init.constant_(shared.log_precisions, log_precision)
        precision = torch.tensor(math.exp(log_precision), dtype=torch.float64)
        prior = -Gamma(5e3, 2.0).log_prob(precision) - Gamma(2.5e2, 0.1).log_prob(precision)
        alone = mixture_nll(shared.network.weight.flatten(), shared.components())
        values.append((shared.complexity() - alone - prior).item())
    assert values[0] == pytest.approx(values[1], rel=1e-6)  # the same up to the densities' constants


def test_the_mixture_enters_the_loss_after_the_pretraining():
    method = SoftWeightSharing(tau=2.0, pretrain=0.5)
    model = method.build(nn.Linear(4, 2, bias=False))
    batch = Batch(torch.zeros(3, 4), torch.tensor([0, 1, 0]))
    early, late = (method.loss(model, batch, Step(index, 10, 0.0, 1, 50)).item() for index in (4, 5))
    assert early == pytest.approx(math.log(2))
    assert late == pytest.approx(math.log(2) + 2.0 * model.complexity().item() / 50, rel=1e-5)


def test_eval_mode_is_the_quantised_network_once_the_mixture_is_active():
    shared = SharedWeights(nn.Linear(6, 5), components=3, zero_share=0.5)
    x = torch.rand(4, 6)
    assert torch.equal(shared.eval()(x), shared.network(x))
    shared.start_()
    quantised = shared.final_weights()["weight"]
    assert quantised.unique().numel() <= 4
    torch.testing.assert_close(shared(x), nn.functional.linear(x, quantised, shared.network.bias))
    assert torch.equal(shared.train()(x), shared.network(x))


@pytest.mark.trained
def test_it_ends_with_few_values_most_of_them_zero(task):
    method = SoftWeightSharing(tau=0.01)
    model = task.fit(method, lr=1e-2)
    plain = method.finish(model)
    values = torch.cat([layer.weight.flatten() for _, layer in weight_layers(plain)]).unique()
    assert len(values) <= 17
    above(0.5, 1 - 1 / sparsity(plain).ratio, mean=0.792, sd=0.035)
    below(70, task.error(plain), mean=14.8, sd=5.4)


def test_another_model_is_refused():
    with pytest.raises(TypeError, match=r"`model` must come from SoftWeightSharing\.build; got Linear"):
        SoftWeightSharing().finish(nn.Linear(3, 2))
