"""The estimate of what runs cost."""

from dataclasses import replace

import pytest
import torch

from vbdrop.experiments.cost import StepTimer, estimate
from vbdrop.methods import METHODS
from vbdrop.train.sparsity import sparsity


def test_cost_grows_with_epochs_and_examples_and_is_measured_once(tiny, monkeypatch):
    made = []
    original = StepTimer.__init__
    monkeypatch.setattr(StepTimer, "__init__", lambda self, *a, **k: (made.append(a), original(self, *a, **k))[1])
    base = replace(tiny("plain"), n_train=None)
    longer = replace(base, budget=replace(base.budget, epochs=30, seed=3))
    half = replace(base, n_train=4000)
    held_out = replace(base, n_valid=4000)
    seconds = estimate([base, longer, half, held_out])
    assert len(made) == 1
    assert seconds[1] == pytest.approx(10 * seconds[0])
    assert seconds[2] < seconds[0] < seconds[1]
    assert all(0 < value < 60 for value in seconds)


def test_the_short_run_goes_through_all_phases_of_a_method(tiny):
    timer = StepTimer(tiny("magnitude-pruning"))
    for _ in range(18):
        timer.step()
    network = timer.method.finish(timer.model)
    assert sparsity(network).ratio > 1.5  # it was trained, pruned and trained again


def test_measuring_leaves_no_trace(tiny):
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    estimate([tiny("vbd-weights")])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_measured(name, tiny):
    assert estimate([tiny(name)])[0] > 0
