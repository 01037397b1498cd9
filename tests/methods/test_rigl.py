"""RigL: a constant number of connections, dropped by size and grown by gradient, starting at zero."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.trained import above, below
from torch import nn

from vbdrop.methods import RigL
from vbdrop.methods.rigl import erdos_renyi_densities, moved
from vbdrop.methods.shared.masks import mask_of
from vbdrop.models import MLP, LeNet5
from vbdrop.train.method import Batch, Step
from vbdrop.train.sparsity import sparsity, weight_layers


@given(st.floats(0.005, 0.95), st.sampled_from([MLP([300, 100]), LeNet5(), MLP([5])]))
def test_the_densities_of_the_layers_make_the_wanted_one(density, net):
    shapes = [layer.weight.shape for _, layer in weight_layers(net)]
    densities = erdos_renyi_densities(shapes, density)
    assert all(0 < value <= 1 for value in densities)
    sizes = [math.prod(shape) for shape in shapes]
    together = sum(value * size for value, size in zip(densities, sizes, strict=True)) / sum(sizes)
    assert together == pytest.approx(density)
    ratios = [v / (sum(s) / math.prod(s)) for v, s in zip(densities, shapes, strict=True) if v < 1]
    assert max(ratios) == pytest.approx(min(ratios))  # proportional where not full


def test_connections_are_dropped_by_size_and_grown_by_gradient():
    mask = torch.tensor([True, True, True, False, False, False])
    weight = torch.tensor([0.3, -0.1, 2.0, 0.0, 0.0, 0.0])
    gradient = torch.tensor([9.0, 0.1, 9.0, -5.0, 1.0, 2.0])
    assert moved(mask, weight, gradient, 1).tolist() == [True, False, True, True, False, False]
    assert moved(mask, weight, gradient, 2).tolist() == [True, False, True, True, False, False]  # 0.3 is grown again


def test_the_moving_fraction_falls_on_a_cosine():
    method = RigL(fraction=0.4, stop=0.5)
    fractions = [method.moving_fraction(Step(index, 100, 0.0, 1, 1)) for index in (0, 25, 50, 99)]
    assert fractions == pytest.approx([0.4, 0.2, 0.0, 0.0])


@pytest.mark.trained
def test_the_sparsity_is_constant_while_connections_move(task):
    method = RigL(sparsity=0.8, every=10, dense_output=False)
    counts, masks = set(), []

    def watch(model, step):
        layers = [layer for _, layer in weight_layers(model)]
        counts.add(tuple(int(mask_of(layer).sum()) for layer in layers))
        assert all(not layer.weight[~mask_of(layer)].any() for layer in layers)
        masks.append(torch.cat([mask_of(layer).flatten() for layer in layers]))

    plain = method.finish(task.fit(method, epochs=10, watch=watch))
    assert len(counts) == 1
    assert sum(*counts) == pytest.approx(0.2 * sparsity(plain).weights, abs=3)
    changed = [int((a != b).sum()) for a, b in pairwise(masks)]
    moves = [i for i, count in enumerate(changed) if count]
    above(20, len(moves), mean=23.0, sd=0.0)
    assert moves[-1] < 0.75 * len(masks), "the connections rest in the end"
    below(35, task.error(plain), mean=13.1, sd=1.7)


def test_a_grown_connection_starts_at_zero():
    torch.manual_seed(0)
    method = RigL(sparsity=0.5, every=1, distribution="uniform")
    model = method.build(torch.nn.Linear(20, 10))
    before = mask_of(model).clone()
    model.weight.grad = torch.randn_like(model.weight)
    model.weight.data.add_(0.01)  # the optimizer also moved what is absent
    method.after_step(model, Step(0, 100, 0.0, 1, 1))
    grown = mask_of(model) & ~before
    assert grown.any()
    assert not model.weight[grown].any()
    assert model.weight[mask_of(model) & before].all()


def test_the_output_layer_is_dense_and_the_others_have_the_sparsity():
    """As in the authors' code for MNIST."""
    torch.manual_seed(0)
    model = RigL(sparsity=0.9).build(nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 40), nn.Linear(40, 10)))
    kept = [int(mask_of(layer).sum()) for _, layer in weight_layers(model)]
    assert kept[-1] == 400
    assert sum(kept[:-1]) == pytest.approx(0.1 * (5000 + 2000), abs=2)


def test_l2_pulls_at_the_weights_as_the_authors_value_says():
    torch.manual_seed(0)
    model = RigL(sparsity=0.5).build(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
    batch = Batch(torch.rand(5, 4), torch.tensor([0, 1, 0, 1, 1]))
    step = Step(index=0, steps=10, epoch=0.0, epochs=1, n_train=5)
    with_l2, without = (
        torch.autograd.grad(method.loss(model, batch, step), model[0].weight)[0] for method in (RigL(), RigL(decay=0.0))
    )
    torch.testing.assert_close(with_l2 - without, 1e-4 * model[0].weight.detach(), rtol=1e-2, atol=1e-8)
