"""Sizes without the small model are those of the small model."""

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.targets.sizes import SizeCounter, size_in


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)
        self.conv2, self.head = nn.Conv2d(6, 8, 3), nn.Linear(8 * 16, 5)

    def forward(self, x):
        return self.head(torch.relu(self.conv2(torch.relu(self.norm(self.conv1(x))))).flatten(1))


def gated(dead=0):
    torch.manual_seed(0)
    model = Net()
    vbdrop.convert_(model, vbdrop.Units(), vbdrop.Weights())
    with torch.no_grad():
        model.conv2.gate.log_sigma2[:dead] = 9.0
        model.head.log_sigma2[:, ::3] = 9.0
    return model


@pytest.mark.parametrize("dead", [0, 2, 5])
def test_they_are_those_of_compress(dead):
    model, x = gated(dead), torch.randn(2, 1, 8, 8)
    sizes = SizeCounter(gated(), (x,)).count(model)
    small = vbdrop.compress(model, x)
    after = small.summary().after
    assert (sizes.weights, sizes.bytes, sizes.macs) == (after.nonzeros, after.bytes, after.macs)
    assert sizes.parameters == sum(p.numel() for p in small.model.parameters())
    assert sizes.shapes["conv1.weight"] == tuple(small.model.conv1.weight.shape)


def test_before_counts_everything():
    counter = SizeCounter(gated(3), (torch.randn(2, 1, 8, 8),))
    plain = Net()
    assert counter.before.parameters == sum(p.numel() for p in plain.parameters())
    assert counter.before.weights == sum(p.numel() for p in plain.parameters() if p.dim() > 1)
    assert size_in(counter.before, "macs") == 54 * 36 + 432 * 16 + 8 * 16 * 5


def test_only_what_is_chosen_counts():
    counter = SizeCounter(gated(), (torch.randn(2, 1, 8, 8),), only=lambda module, name: name == "head")
    assert counter.before.weights == 8 * 16 * 5
    assert counter.before.parameters == 8 * 16 * 5 + 5
    with pytest.raises(ValueError, match="it selected none"):
        SizeCounter(gated(), (torch.randn(2, 1, 8, 8),), only=lambda module, name: False)


def test_a_model_without_a_graph_says_so():
    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return self.linear(x) if float(x.sum()) > 0 else x

    model = Asks()
    vbdrop.convert_(model, vbdrop.Weights())
    with pytest.raises(ValueError, match="cannot be counted"):
        SizeCounter(model, (torch.ones(1, 2),))
