"""Structured Bayesian pruning: gates that wait for the trained network, and units that go."""

import pytest
import torch
from tests.trained import above, below
from torch import nn

from vbdrop.methods import StructuredBayesianPruning
from vbdrop.methods.shared import truncated_log_normal
from vbdrop.methods.structured_bayesian_pruning import LogNormalGate
from vbdrop.train.method import Batch, Step


def active_gate() -> LogNormalGate:
    gate = LogNormalGate(3, -3)
    gate.active.fill_(True)
    with torch.no_grad():
        gate.mu.copy_(torch.tensor([0.0, -1.0, -15.0]))
        gate.log_sigma.copy_(torch.tensor([-5.0, -1.0, 2.0]))
    return gate


def test_a_gate_is_open_until_the_pretraining_ends():
    method = StructuredBayesianPruning(pretrain=0.5)
    model = method.build(nn.Linear(4, 2))
    x = torch.rand(3, 4)
    assert torch.equal(model.gate(x), x)
    method.after_step(model, Step(3, 10, 0.0, 1, 1))
    assert not model.gate.active
    method.after_step(model, Step(4, 10, 0.0, 1, 1))
    assert model.gate.active
    assert not torch.equal(model.gate(x), x)


def test_in_eval_mode_a_unit_has_its_mean_or_is_dead():
    gate = active_gate().eval()
    expected = truncated_log_normal.mean(gate.mu, gate.log_sigma).float()
    values = gate(torch.ones(2, 3, 4, 4))
    torch.testing.assert_close(values[1, :2, 2, 3], expected[:2])
    assert not values[:, 2].any()


def test_in_training_each_example_and_channel_has_one_draw():
    values = active_gate()(torch.ones(8, 3, 4, 4)).detach()
    assert torch.equal(values, values[..., :1, :1].expand_as(values))
    assert values[:, 1, 0, 0].unique().numel() == 8
    assert values.max() <= 1


def test_in_training_nothing_is_computed_for_eval_mode(monkeypatch):
    """Its special functions in float64 would take longer than the draw."""
    gate = LogNormalGate(4, -1)
    gate.active.fill_(True)
    monkeypatch.setattr(truncated_log_normal, "log_moment", None)
    assert gate(torch.ones(2, 4)).shape == (2, 4)
    with pytest.raises(TypeError):
        gate.eval()(torch.ones(2, 4))


def test_the_loss_adds_the_weighted_kl_after_the_pretraining():
    batch = Batch(torch.zeros(3, 4), torch.tensor([0, 1, 0]))
    method = StructuredBayesianPruning(kl_weight=6.0, pretrain=0.5)
    model = method.build(nn.Linear(4, 2, bias=False))
    early, late = (method.loss(model, batch, Step(index, 10, 0.0, 1, 50)).item() for index in (4, 5))
    kl = 4 * truncated_log_normal.kl(torch.tensor(0.0), torch.tensor(-5.0)).item()
    assert late - early == pytest.approx(6 * kl / 50, rel=1e-5)


@pytest.mark.trained
def test_units_die_and_the_network_stays_good(task):
    method = StructuredBayesianPruning(kl_weight=6.0, gate_lr=10.0)
    plain = method.finish(task.fit(method, epochs=8))
    inputs = plain.hidden[0].weight.abs().sum(0) > 0
    above(60, int((~inputs).sum()), mean=116.0, sd=3.0)
    below(25, task.error(plain), mean=14.9, sd=0.78)
