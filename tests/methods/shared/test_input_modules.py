"""Modules before layers and gates on units: where they are put, and what folding them in gives."""

import copy

import pytest
import torch
from torch import nn

from vbdrop.layers import NoisyLayer
from vbdrop.methods.shared.input_modules import gates_of, last_convolution, put_before_, put_gates_, take_out_
from vbdrop.models import MLP, KingmaCNN, LeNet5


class Scale(nn.Module):
    """A gate of fixed values, applied along the units' axis."""

    def __init__(self, units: int, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.factor = nn.Parameter(torch.rand(units))

    def forward(self, x):
        return x * self.factor.view(-1, *[1] * (-self.axis - 1))


@pytest.mark.parametrize(
    ("net", "shape", "units"),
    [
        (lambda: MLP([30, 20]), (1, 28, 28), [784, 30, 20]),
        (LeNet5, (1, 28, 28), [20, 50, 800, 500]),
        (lambda: KingmaCNN(0.25), (3, 32, 32), [8, 16, 784, 32, 32]),
    ],
)
def test_every_unit_has_one_gate_and_folding_gives_the_same_outputs(net, shape, units):
    model = net()
    put_gates_(model, lambda count, axis, inputs: Scale(count, axis))
    assert [gate.factor.numel() for _, _, gate in gates_of(model)] == units
    x = torch.rand(3, *shape)
    expected = model(x)
    plain = take_out_(copy.deepcopy(model), lambda gate: gate.factor)
    assert not any(isinstance(module, NoisyLayer | Scale) for module in plain.modules())
    torch.testing.assert_close(plain(x), expected)


def test_the_networks_inputs_are_told_apart():
    seen = []
    put_gates_(MLP([30, 20]), lambda count, axis, inputs: seen.append((count, inputs)) or nn.Identity())
    assert seen == [(784, True), (30, False), (20, False)]
    seen.clear()
    put_gates_(LeNet5(), lambda count, axis, inputs: seen.append(inputs) or nn.Identity())
    assert not any(seen), "the image's own channel has no gate"


def test_a_layer_for_which_there_is_no_module_stays_plain():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    put_before_(model, lambda layer, first: None if first else nn.Dropout(0.5))
    assert type(model[0]) is nn.Linear
    assert isinstance(model[2].gate, nn.Dropout)
    assert type(take_out_(model, lambda gate: None)[2]) is nn.Linear


def test_a_grouped_convolution_is_folded_by_its_groups():
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 6, 3, groups=2), nn.Flatten(), nn.Linear(6 * 9, 2))
    put_gates_(model, lambda count, axis, inputs: Scale(count, axis))
    x = torch.rand(2, 1, 5, 5)
    expected = model(x)
    torch.testing.assert_close(take_out_(model, lambda gate: gate.factor)(x), expected)


def test_only_a_convolution_before_a_linear_layer_is_the_last_one():
    assert last_convolution(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 3, 3))) is None
    assert last_convolution(MLP([3])) is None
