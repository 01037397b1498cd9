"""What sparse VD and VBD on weights share: the settings reach the layers, and the penalty makes them sparse."""

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.methods import SparseVD, VBDWeights
from vbdrop.train.sparsity import sparsity

both = pytest.mark.parametrize("kind", [SparseVD, VBDWeights])


@both
def test_the_settings_reach_the_layers_and_the_optimizer(kind):
    method = kind(threshold=1.0, log_sigma2=-7.0, rate_lr=5.0)
    model = method.build(nn.Linear(4, 2))
    nn.init.ones_(model.weight)
    assert model.noise.threshold == 1.0
    assert model.log_sigma2.max().item() <= -7.0
    assert [group["lr"] for group in method.groups(model, 0.1)] == [0.1, 0.5]


@both
def test_the_penalty_makes_the_network_sparse(task, kind):
    method = kind()
    plain = method.finish(task.fit(method, epochs=10))
    assert sparsity(plain).ratio > 6
    assert task.error(plain) < 20


@both
def test_dead_weights_are_those_above_the_threshold(kind):
    method = kind(threshold=0.5)
    model = method.build(nn.Linear(30, 20))
    with torch.no_grad():
        model.log_sigma2.copy_(torch.randn(20, 30) - 7)
    (entry,) = model.variational()
    dead = entry.log_alpha_full() >= 0.5
    assert dead.any()
    assert torch.equal(method.finish(model).weight == 0, dead)


def test_the_two_differ_in_their_prior_alone():
    torch.manual_seed(0)
    vd, vbd = (kind().build(nn.Linear(4, 2)) for kind in (SparseVD, VBDWeights))
    assert {type(vd.noise.prior).__name__, type(vbd.noise.prior).__name__} == {"LogUniform", "Hierarchical"}
    vbd.load_state_dict(vd.state_dict())
    assert vbdrop.kl(vd).item() > vbdrop.kl(vbd).item()
