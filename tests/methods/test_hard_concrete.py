"""L0 gates: probabilities against simulation, the expected number of weights, and units that go."""

import math

import pytest
import torch
from tests.trained import above, below
from torch import nn

from vbdrop.methods import HardConcrete
from vbdrop.methods.hard_concrete import LIMITS, HardConcreteGate, open_probability
from vbdrop.train.method import Batch, Step

STEP = Step(index=0, steps=10, epoch=0.0, epochs=1, n_train=50)


@pytest.mark.parametrize("log_a", [-3.0, -1.0, 0.0, 2.0])
def test_a_gate_is_open_with_the_stated_probability(log_a):
    n = 100_000
    gate = HardConcreteGate(1, -1, rate=0.5)
    nn.init.constant_(gate.log_a, log_a)
    z = gate(torch.ones(n, 1)).detach()
    probability = open_probability(torch.tensor(log_a)).item()
    assert (z > 0).float().mean().item() == pytest.approx(probability, abs=5 * 0.5 / n**0.5)
    assert probability == pytest.approx(1 / (1 + math.exp(-(log_a - 2 / 3 * math.log(0.1 / 1.1)))))
    assert ((z == 0) | (z == 1)).float().mean() > 0.2


def test_the_start_has_the_given_rate():
    gate = HardConcreteGate(10_000, -1, rate=0.2)
    assert torch.sigmoid(gate.log_a).mean().item() == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize(("per", "size"), [("unit", 1), ("weight", 2)])
def test_the_penalty_is_the_expected_number_of_what_is_counted_and_the_squares(per, size):
    method = HardConcrete(weight=0.3, decay=0.7, per=per)
    model = method.build(nn.Linear(4, 2, bias=False))
    batch = Batch(torch.zeros(3, 4), torch.tensor([0, 1, 0]))
    p = torch.sigmoid(model.gate.log_a + 2 / 3 * math.log(11))
    expected = (p * (0.3 * size + 0.35 * model.weight.square().sum(0))).sum() / 50
    assert method.loss(model, batch, STEP).item() == pytest.approx(math.log(2) + expected.item(), rel=1e-5)


def test_log_a_stays_within_its_limits():
    method = HardConcrete()
    model = method.build(nn.Linear(4, 2))
    for value, limit in ((-9.0, LIMITS[0]), (9.0, LIMITS[1])):
        nn.init.constant_(model.gate.log_a, value)
        method.after_step(model, STEP)
        assert model.gate.log_a.tolist() == pytest.approx([limit] * 4)


def test_a_gate_at_its_lower_limit_is_exactly_closed_and_at_its_upper_one_open():
    gate = HardConcreteGate(2, -1, rate=0.5).eval()
    with torch.no_grad():
        gate.log_a.copy_(torch.tensor(LIMITS))
    assert gate(torch.ones(1, 2)).tolist() == [[0.0, 1.0]]


@pytest.mark.trained
def test_units_go_and_the_network_stays_good(task):
    method = HardConcrete(weight=25.0, gate_lr=1.0)
    plain = method.finish(task.fit(method, lr=2e-2, epochs=15))
    inputs = plain.hidden[0].weight.abs().sum(0) > 0
    above(60, int((~inputs).sum()), mean=135.0, sd=3.9)
    below(45, task.error(plain), mean=15.0, sd=2.1)
