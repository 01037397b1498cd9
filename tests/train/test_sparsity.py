"""Which weights count."""

import math

import torch
from torch import nn

from vbdrop.models import LeNet5
from vbdrop.train.sparsity import Sparsity, sparsity


def test_weights_of_linear_maps_count_and_nothing_else():
    model = nn.Sequential(nn.Conv2d(2, 3, 5), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 4))
    with torch.no_grad():
        model[0].weight[0] = 0
        model[0].bias.zero_()
    found = sparsity(model)
    assert found == Sparsity(weights=150 + 12, nonzero={"0": 100, "3": 12})
    assert found.kept == 112
    assert found.ratio == 162 / 112


def test_weights_that_were_taken_out_count_as_zero():
    assert sparsity(nn.Linear(3, 2), weights=60) == Sparsity(weights=60, nonzero={"": 6})


def test_a_tied_weight_counts_once_under_its_first_layer():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    model[3].weight = nn.Parameter(model[0].weight.detach().T)
    assert sparsity(model) == Sparsity(weights=9, nonzero={"0": 9})


def test_weights_that_are_computed_or_share_a_buffer_are_not_tied():
    """A weight that is computed at each access may get the memory of the one before."""
    model = nn.Sequential(*(nn.utils.parametrizations.weight_norm(nn.Linear(300, 300)) for _ in range(3)))
    assert sparsity(model).weights == 3 * 90_000
    flat = torch.randn(18)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    for index, layer in enumerate(model):
        layer.weight = nn.Parameter(flat[9 * index : 9 * index + 9].view(3, 3))
    assert sparsity(model).kept == 18


def test_the_papers_count_and_a_network_with_nothing_left():
    model = LeNet5()
    assert sparsity(model).weights == 430_500
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    assert sparsity(model).ratio == math.inf
