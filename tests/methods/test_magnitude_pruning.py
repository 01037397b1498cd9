"""Magnitude pruning: the threshold, the tenth of the learning rate, and weights that stay dead."""

import pytest
import torch
from tests.trained import above, below
from torch import nn

from vbdrop.methods import MagnitudePruning
from vbdrop.methods.magnitude_pruning import prune_
from vbdrop.methods.shared.losses import squared_weights
from vbdrop.methods.shared.masks import add_masks_, apply_masks_, mask_of
from vbdrop.train.method import Batch, Step
from vbdrop.train.sparsity import sparsity, weight_layers


def test_the_threshold_is_the_quality_times_the_deviation_of_what_is_left():
    layer = nn.Linear(100, 50)
    nn.init.normal_(layer.weight, std=0.2)
    add_masks_(layer)
    prune_(layer, 1.0)
    first = layer.weight.detach().clone()
    assert torch.equal(mask_of(layer), first.abs() >= first.std())
    assert mask_of(layer).float().mean().item() == pytest.approx(0.3173, abs=0.03)  # of a normal beyond one deviation
    apply_masks_(layer)
    prune_(layer, 1.0)
    assert torch.equal(mask_of(layer), first.abs() >= first[first.abs() >= first.std()].std())


def test_a_layer_with_one_weight_left_keeps_it():
    layer = nn.Linear(3, 1)
    add_masks_(layer)
    mask_of(layer)[0, 1:] = False
    apply_masks_(layer)
    prune_(layer, 5.0)
    assert mask_of(layer).tolist() == [[True, False, False]]


def test_retraining_takes_a_tenth_of_the_step():
    steps = []
    for index in (2, 8):  # before and after the first pruning
        method = MagnitudePruning(quality=1e-9, pretrain=0.5, rounds=1)
        torch.manual_seed(0)
        model = method.build(nn.Linear(4, 2))
        before = [p.detach().clone() for p in model.parameters()]
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        step = Step(index, 10, 0.0, 1, 10)
        method.loss(model, Batch(torch.ones(3, 4), torch.tensor([0, 1, 0])), step).backward()
        optimizer.step()
        method.after_step(model, step)
        steps.append([p.detach() - b for p, b in zip(model.parameters(), before, strict=True)])
    for whole, tenth in zip(*steps, strict=True):
        torch.testing.assert_close(tenth, 0.1 * whole)
        assert whole.abs().min() > 0.05


@pytest.mark.trained
def test_it_prunes_round_by_round_and_what_is_dead_stays_dead(task):
    method = MagnitudePruning(quality=0.5, rounds=3)
    kept, dead = [], []

    def watch(model, step):
        count = sparsity(model).kept
        if not kept or count != kept[-1]:
            kept.append(count)
        now = torch.cat([(layer.weight == 0).flatten() for _, layer in weight_layers(model)])
        assert not dead or bool((now | ~dead[-1]).all())
        dead.append(now)

    plain = method.finish(task.fit(method, epochs=12, watch=watch))
    assert len(kept) == 4  # before the first and after each of the three prunings
    above(1.1, sparsity(plain).ratio, mean=2.49, sd=0.18)
    below(25, task.error(plain), mean=12.0, sd=1.0)


def test_the_penalty_leaves_biases_out():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 2.0)
    assert squared_weights(model).item() == 4 * 6


def test_a_layer_without_a_bias_is_fine():
    method = MagnitudePruning()
    model = method.build(nn.Linear(3, 2, bias=False))
    assert "bias_before" not in model.state_dict()
    assert list(method.finish(model).state_dict()) == ["weight"]
