"""VBD gates: where they are, how they are weighted, and units that go."""

import math

import pytest
import torch
from tests.trained import above, below
from torch import nn

import vbdrop
from vbdrop.methods import VBDGates
from vbdrop.models import LeNet5
from vbdrop.train.method import Batch, Step

LATE = Step(index=90, steps=100, epoch=9.0, epochs=10, n_train=1_000)


def test_every_unit_of_lenet5_has_a_gate():
    model = VBDGates().build(LeNet5())
    counts = {name: row.count for name, row in vbdrop.rates(model).items()}
    assert counts == {"conv2.gate": 20, "conv2.output_gate": 50, "fc1.gate": 800, "fc2.gate": 500}


def test_positions_weigh_a_channel_by_the_size_of_its_map():
    batch = Batch(torch.rand(2, 1, 28, 28), torch.tensor([0, 1]))
    losses = {}
    for weighting in ("units", "positions"):
        for weight in (0.0, 7.0):
            method = VBDGates(kl_weight=weight, weighting=weighting)
            torch.manual_seed(0)
            losses[weighting, weight] = method.loss(method.build(LeNet5()), batch, LATE).item()
    one = 0.5 * math.log1p(math.exp(9)) * 7 / 1_000  # a gate at its start: mean 1, log variance -9
    counted = {key: (losses[key, 7.0] - losses[key, 0.0]) / one for key in ("units", "positions")}
    assert counted["units"] == pytest.approx(20 + 50 + 800 + 500, rel=1e-3)
    assert counted["positions"] == pytest.approx(20 * 12 * 12 + 50 * 8 * 8 + 800 + 500, rel=1e-3)


def test_the_penalty_waits_and_rises():
    batch = Batch(torch.rand(2, 4), torch.tensor([0, 1]))
    for weighting in ("units", "positions"):
        added = []
        for epoch in (0.1, 0.625, 5.0):
            pair = []
            for weight in (0.0, 20.0):
                method = VBDGates(kl_weight=weight, weighting=weighting)
                torch.manual_seed(0)
                step = Step(0, 100, epoch, 10, 1_000)
                pair.append(method.loss(method.build(nn.Linear(4, 2)), batch, step).item())
            added.append(pair[1] - pair[0])
        assert added == pytest.approx([0, 0.5 * added[2], added[2]], rel=1e-3)
        assert added[2] > 0


@pytest.mark.trained
def test_units_go_and_the_network_stays_good(task):
    method = VBDGates(kl_weight=4.0)
    plain = method.finish(task.fit(method, epochs=10))
    inputs = plain.hidden[0].weight.abs().sum(0) > 0
    above(60, int((~inputs).sum()), mean=99.2, sd=1.9)
    below(25, task.error(plain), mean=10.7, sd=0.68)


def test_an_unknown_weighting_is_refused():
    with pytest.raises(ValueError, match="`weighting` of VBDGates must be one of 'units', 'positions'; got 'flops'"):
        VBDGates(weighting="flops")
