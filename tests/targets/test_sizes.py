"""Sizes without the small model are those of the small model."""

import pytest
import torch
from tests.compression.streams import Words
from torch import nn

import vbdrop
from vbdrop.layers import Gate
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


@pytest.mark.parametrize(("dead", "columns"), [(1, 20), (10, 10)])
def test_a_forward_that_would_hardly_pay_is_not_counted_as_new(dead, columns):
    model, x = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5)), torch.randn(2, 20)
    vbdrop.convert_(model, vbdrop.Units())
    counter = SizeCounter(model, (x,))
    with torch.no_grad():
        model[0].gate.log_sigma2[:dead] = 9.0
    sizes, after = counter.count(model), vbdrop.compress(model, x).summary().after
    assert sizes.shapes["0.weight"] == (30, columns)
    assert (sizes.weights, sizes.bytes, sizes.macs) == (after.nonzeros, after.bytes, after.macs)


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


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.last = nn.Linear(8, 6), nn.Linear(8, 6), nn.Linear(6, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.last(torch.relu(self.a(x)) + torch.relu(self.b(x)))


class Shared(nn.Module):
    """A module under two names."""

    def __init__(self):
        super().__init__()
        self.a, self.hidden, self.last = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 3)
        self.also = self.a

    def forward(self, x):
        return self.last(torch.relu(self.hidden(self.also(torch.relu(self.a(x))))))


SEVERAL_NAMES = [(Tied, torch.randn(2, 8)), (Shared, torch.randn(2, 8)), (Words, torch.arange(10).view(2, 5))]


@pytest.mark.parametrize(("kind", "x"), SEVERAL_NAMES)
def test_a_tensor_with_several_names_counts_once(kind, x):
    torch.manual_seed(0)
    model = kind()
    vbdrop.convert_(model, vbdrop.Units(log_sigma2=-9.0), example_inputs=x)
    counter = SizeCounter(model, (x,))
    assert counter.count(model) == counter.before
    assert counter.before.parameters == sum(p.numel() for p in kind().parameters()) == counter.before.bytes / 4
    for gate in (module for module in model.modules() if isinstance(module, Gate)):
        gate.log_sigma2.data[::3] = 9.0
    sizes = counter.count(model)
    small = vbdrop.compress(model, x, rewrite_gain=0.0)
    after = small.summary().after
    assert (sizes.weights, sizes.bytes, sizes.macs) == (after.nonzeros, after.bytes, after.macs)
    assert sizes.parameters == sum(p.numel() for p in small.model.parameters()) < counter.before.parameters


def test_a_target_that_a_tied_weight_puts_out_of_reach_is_refused_before_the_training():
    """Of 2,080 multiply-adds, at least 880 remain: 800 of the last layer, 40 of each of the others."""
    data = torch.arange(100).view(20, 5) % 20, torch.arange(100).view(20, 5) % 20
    epochs = []
    with pytest.raises(ValueError, match=r"cannot be reached: it asks for 832 macs of 2,080 .* leaves 880 macs"):
        vbdrop.shrink(
            Words(),
            data,
            target=vbdrop.Target(macs=2.5),
            epochs=2,
            loss=lambda outputs, targets: nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten()),
            progress=lambda point, last: epochs.append(point),
        )
    assert not epochs


@pytest.mark.parametrize("chosen", ["a", "also"])
def test_a_module_under_two_names_is_chosen_by_either(chosen):
    counter = SizeCounter(Shared(), (torch.randn(2, 8),), only=lambda module, name: name == chosen)
    assert (counter.before.parameters, counter.before.macs) == (72, 128)
    assert counter.counted == {"a.weight", "a.bias", "also.weight", "also.bias"}


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


class Centred(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, self.weight - self.weight.mean(), self.bias)


def test_a_layer_that_computes_its_weight_is_counted():
    model = nn.Sequential(Centred(6, 5), nn.ReLU(), nn.Linear(5, 3))
    assert SizeCounter(model, (torch.randn(2, 6),)).count(model).weights == 45
