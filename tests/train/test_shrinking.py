"""Units that stayed dead go, the outputs stay, and the training goes on."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from vbdrop.kernels import binding
from vbdrop.methods import RigL, VBDGates, VBDWeights
from vbdrop.models import MLP, VGG, LeNet5
from vbdrop.train.method import Batch, Step
from vbdrop.train.shrinking import Shrinking, Shrunk, check_shrinks

DEAD = 5.0
"""A ``log_sigma2`` with which every gate and weight here is dead."""


class Residual(nn.Module):
    """Sums, normalisation without a bias before it, and a flattened image."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(n, 8, 3, padding=1, bias=False) for n in (1, 8, 8))
        self.norm = nn.BatchNorm2d(8)
        self.fc1, self.fc2 = nn.Linear(8 * 16, 12), nn.Linear(12, 3)

    def forward(self, x):
        x = relu(self.norm(self.first(x)))
        x = x + self.third(relu(self.second(x)))
        return self.fc2(relu(self.fc1(x.flatten(1))))


NETS = {
    "mlp": (lambda: MLP([20, 12], inputs=30), (30,)),
    "lenet": (LeNet5, (1, 28, 28)),
    "residual": (Residual, (1, 4, 4)),
    "vgg": (lambda: VGG(width=0.1), (3, 32, 32)),
}
PRECISIONS = [(net, torch.float64) for net in NETS] + [
    (net, torch.float32) for net in NETS if net != "vgg"
]  # the slowest


class Setting:
    """A model in training, its optimizer, and what takes its dead units out."""

    def __init__(self, method, net, dtype=torch.float32):
        build, shape = NETS[net]
        torch.manual_seed(2)
        self.method = method
        self.x, self.y = torch.rand(16, *shape, dtype=dtype), torch.randint(3, (16,))
        self.model = method.build(build().to(dtype))
        self.optimizer = torch.optim.Adam(method.groups(self.model, lr=1e-3), fused=True)
        self.shrinking = Shrinking(method, self.model, self.x)
        self.train(2)

    def train(self, steps):
        self.model.train()
        for index in range(steps):
            loss = self.method.loss(self.model, Batch(self.x, self.y), Step(index, 100, 1.0, 10, 1000))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def outputs(self, model=None):
        model = copy.deepcopy(self.model if model is None else model).eval()
        return model(self.x)

    @torch.no_grad()
    def kill_(self, first, last):
        """These units of every layer: their gates, or all weights that enter them, and those that read them."""
        for module in self.model.modules():
            if hasattr(module, "gate"):
                module.gate.log_sigma2[first:last] = DEAD
            elif isinstance(self.method, VBDWeights) and hasattr(module, "log_sigma2") and module.weight.shape[0] > 3:
                module.log_sigma2[first:last] = DEAD
                if module.weight.shape[1] > 3:  # not the channels of an image
                    module.log_sigma2[:, first:last] = DEAD

    def check_(self):
        self.shrinking.check_(self.model, self.optimizer)

    def sizes(self):
        return {name: tuple(p.shape) for name, p in self.model.named_parameters()}


def largest_difference(a, b):
    return (a - b).abs().max().item() / a.abs().max().clamp_min(1).item()


@pytest.mark.parametrize("method", [VBDGates(), VBDWeights()], ids=["gates", "weights"])
@pytest.mark.parametrize(("net", "dtype"), PRECISIONS)
def test_what_stayed_dead_goes_and_the_outputs_stay(method, net, dtype):
    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    setting = Setting(method, net, dtype)
    before = setting.sizes()
    setting.check_()
    setting.kill_(0, 3)
    setting.check_()
    assert setting.sizes() == before  # dead at one check only
    shapes = [before]
    for first, last in ((3, 4), (4, 5)):
        setting.kill_(first, last)
        expected, whole = setting.outputs(), setting.shrinking.whole(setting.model)
        setting.check_()
        shapes.append(setting.sizes())
        assert largest_difference(expected, setting.outputs()) < tolerance
        assert largest_difference(expected, setting.outputs(whole)) < tolerance
        assert largest_difference(expected, setting.outputs(setting.shrinking.whole(setting.model))) < tolerance
        for parameter in setting.model.parameters():
            state = setting.optimizer.state[parameter]
            assert {value.shape for value in state.values() if value.dim()} <= {parameter.shape}
        assert math.isfinite(setting.train(2))
    totals = [sum(torch.Size(size).numel() for size in sizes.values()) for sizes in shapes]
    assert totals[0] > totals[1] > totals[2]
    assert {n: tuple(p.shape) for n, p in setting.shrinking.whole(setting.model).named_parameters()} == before


@pytest.mark.parametrize("method", [VBDGates(), VBDWeights(pretrain=0.0)], ids=["gates", "weights"])
def test_images_keep_their_order_in_memory(method):
    setting = Setting(method, "lenet")
    setting.model.to(memory_format=torch.channels_last)
    setting.train(1)
    setting.kill_(0, 3)
    for _ in range(2):
        setting.check_()
    first, second = setting.model.conv1.weight, setting.model.conv2.weight
    assert first.shape[0] == second.shape[1] < 20
    for tensor in (first, second, *(setting.optimizer.state[weight]["exp_avg"] for weight in (first, second))):
        assert tensor.stride(1) == 1  # also where there is one channel: torch chooses its way by the strides
    if binding.available():  # the formula leaves the order to torch, which is free to choose for one channel
        assert setting.model.conv1(setting.x).stride(1) == 1


def test_what_only_the_end_would_cut_stays_in_training():
    setting = Setting(VBDWeights(pretrain=0.0, cut=-100.0), "mlp")
    before = setting.sizes()
    for _ in range(3):
        setting.check_()
    assert setting.sizes() == before
    assert not setting.method.finish(copy.deepcopy(setting.model)).output.weight.any()


def test_a_unit_that_comes_back_to_life_stays():
    setting = Setting(VBDGates(), "mlp")
    setting.kill_(0, 4)
    setting.check_()
    with torch.no_grad():
        for module in setting.model.modules():
            if hasattr(module, "gate"):
                module.gate.log_sigma2[1] = -10
    setting.check_()
    assert [tuple(layer.weight.shape) for layer in setting.model.hidden] == [(17, 27), (9, 17)]
    assert setting.shrinking.shrunk.plan.keep["output.weight"][1] == [1, *range(4, 12)]
    assert setting.shrinking.shrunk.arriving["hidden.0"] == list(range(30))


def test_the_random_state_stays():
    setting = Setting(VBDGates(), "mlp")
    setting.kill_(0, 4)
    state = torch.get_rng_state()
    setting.check_()
    setting.check_()
    assert torch.equal(torch.get_rng_state(), state)


def test_the_shape_comes_back_from_data():
    setting = Setting(VBDGates(), "lenet")
    for first in range(0, 6, 2):
        setting.kill_(first, first + 2)
        setting.check_()
    data = setting.shrinking.shrunk.as_data()
    assert Shrunk.from_data(data) == setting.shrinking.shrunk
    other = Setting(VBDGates(), "lenet")
    other.shrinking.load_(data, other.model, other.optimizer)
    assert other.sizes() == setting.sizes()
    other.model.load_state_dict(setting.model.state_dict())
    assert torch.equal(other.outputs(), setting.outputs())
    for each in (setting, other):
        each.kill_(6, 8)
        each.check_()
        each.check_()
    assert other.sizes() == setting.sizes()
    assert torch.equal(other.outputs(), setting.outputs())


class Fixed(nn.Module):
    """Spells out the size of what it flattens, so that no channel may go, and goes around the hooks of a layer."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv2d(1, 6, 3), nn.Linear(24, 10), nn.Linear(10, 3)

    def forward(self, x):
        x = relu(self.conv(x)).view(-1, 24)
        return self.fc2(relu(self.fc1.forward(x)))


def test_a_forward_that_would_not_hold_keeps_what_it_needs(monkeypatch):
    monkeypatch.setitem(NETS, "fixed", (Fixed, (1, 4, 4)))
    setting = Setting(VBDGates(), "fixed")
    setting.kill_(0, 4)
    expected = setting.outputs()
    setting.check_()
    setting.check_()
    assert setting.model.conv.weight.shape[0] == 6
    assert setting.model.fc1.weight.shape == (6, 24)
    assert largest_difference(expected, setting.outputs()) < 1e-5


def test_a_network_that_cannot_be_traced_keeps_its_shape(monkeypatch):
    class Untraceable(nn.Sequential):
        def forward(self, x):
            return super().forward(x) * (1 if x.sum().item() > 0 else 2)

    net = Untraceable(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    monkeypatch.setitem(NETS, "untraceable", (lambda: net, (6,)))
    setting = Setting(VBDGates(), "untraceable")
    before = setting.sizes()
    setting.kill_(0, 3)
    setting.check_()
    setting.check_()
    assert setting.sizes() == before


def test_a_method_that_does_not_shrink():
    check_shrinks(VBDGates(), 3)
    check_shrinks(RigL(), None)
    with pytest.raises(ValueError, match=r"`shrink_every` must be None for RigL.*no effect; got 3"):
        check_shrinks(RigL(), 3)
