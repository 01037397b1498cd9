"""Gradual pruning: the cubic schedule, exact counts, and weights that stay dead."""

import pytest
import torch
from tests.trained import above, below
from torch import nn

from vbdrop.methods import GradualPruning
from vbdrop.methods.gradual_pruning import cubic_sparsity
from vbdrop.train.method import Step
from vbdrop.train.sparsity import sparsity, weight_layers


def test_the_schedule_is_cubic():
    assert cubic_sparsity(0.9, 0.0) == 0
    assert cubic_sparsity(0.9, 1.0) == 0.9
    assert cubic_sparsity(0.9, 0.25) == pytest.approx(0.9 - 0.9 * 0.75**3)
    assert cubic_sparsity(0.9, 7.0) == 0.9


@pytest.mark.trained
def test_each_layer_ends_at_the_sparsity_and_nothing_comes_back(task):
    method = GradualPruning(sparsity=0.8, every=10)
    kept, dead = [], []

    def watch(model, step):
        now = torch.cat([(layer.weight == 0).flatten() for _, layer in weight_layers(model)])
        assert not dead or bool((now | ~dead[-1]).all())
        dead.append(now)
        kept.append(sparsity(model).kept)

    plain = method.finish(task.fit(method, epochs=10, watch=watch))
    for _, layer in weight_layers(plain):
        assert int(layer.weight.count_nonzero()) == layer.weight.numel() - round(0.8 * layer.weight.numel())
    steps = len(kept)
    assert kept[int(0.1 * steps) - 2] == kept[0]
    assert kept[int(0.7 * steps)] == kept[-1]
    above(15, len(set(kept)), mean=20.0, sd=0.0)
    below(45, task.error(plain), mean=13.9, sd=2.0)


def test_the_largest_are_kept(task):
    method = GradualPruning(sparsity=0.5, every=1_000, start=0.1, stop=0.5)
    states = []
    task.fit(method, epochs=2, watch=lambda model, step: states.append(model.hidden[0].weight.detach().clone()))
    cut = next(i for i, w in enumerate(states) if bool((w == 0).any()))
    lost = states[cut] == 0
    assert states[cut - 1].abs()[lost].median() < states[cut].abs()[~lost].min()


def test_the_pruning_must_end_after_it_starts():
    with pytest.raises(ValueError, match=r"`stop` of GradualPruning must be after `start`; got stop=0\.1"):
        GradualPruning(start=0.2, stop=0.1)


def test_the_output_layer_is_pruned_less():
    torch.manual_seed(0)
    method = GradualPruning(sparsity=0.95, start=0.0, stop=0.5, every=1)
    model = method.build(nn.Sequential(nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 10)))
    for index in range(10):
        method.after_step(model, Step(index=index, steps=10, epoch=0.0, epochs=1, n_train=5))
    assert [int(torch.count_nonzero(layer.weight)) for layer in (model[0], model[2])] == [10, 20]
