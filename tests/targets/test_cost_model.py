"""The quick size against the exact one, and savings against what removals really save."""

import pytest
import torch
from tests.compression.streams import FeedForward
from torch import nn

import vbdrop
from vbdrop.targets.cost_model import CostModel, press_by_cost_
from vbdrop.targets.layer_times import LayerTimes
from vbdrop.targets.prunable import plain_without, prunables
from vbdrop.targets.sizes import SizeCounter, size_in
from vbdrop.targets.stopwatch import Timing


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 8, 3)
        self.hidden, self.head = nn.Linear(8 * 16, 20), nn.Linear(20, 5)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x)))).flatten(1)
        return self.head(torch.relu(self.hidden(x)))


def made(unit, *modes):
    torch.manual_seed(0)
    model = Net()
    vbdrop.convert_(model, *modes)
    counter = SizeCounter(model, (torch.randn(2, 1, 8, 8),))
    return model, counter, CostModel(model, counter, unit)


@pytest.mark.parametrize("unit", ["weights", "parameters", "bytes", "macs"])
@pytest.mark.parametrize("mode", [vbdrop.Units(), vbdrop.Weights()], ids=["units", "weights"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_the_quick_size_is_close_to_the_exact_one(unit, mode, share):
    model, counter, costs = made(unit, mode)
    generator = torch.Generator().manual_seed(1)
    alive = [torch.rand(one.entry.mean.shape, generator=generator) >= share for one in prunables(model)]
    exact = size_in(counter.count_plain(plain_without(model, [~mask for mask in alive])), unit)
    assert costs.size(alive) == pytest.approx(exact, rel=0.12)
    if share == 0:
        assert costs.size(alive) == size_in(counter.before, unit)


@pytest.mark.parametrize("unit", ["weights", "macs"])
def test_a_saving_is_what_the_removal_of_one_gate_saves(unit):
    model, counter, costs = made(unit, vbdrop.Units())
    alive = [one.alive() for one in prunables(model)]
    savings = costs.savings(alive)
    names = [one.name for one in prunables(model)]
    for name in ("conv2.gate", "head.gate"):  # one reader each: the unit goes with its gate
        index = names.index(name)
        gone = [~mask for mask in alive]
        gone[index][2] = True
        saved = size_in(counter.before, unit) - size_in(counter.count_plain(plain_without(model, gone)), unit)
        assert float(savings[index][2]) == saved


def test_several_gates_of_one_channel_share_what_it_costs():
    """The 16 gates on a channel that was flattened save their columns, and its kernel when all have gone."""
    model, counter, costs = made("macs", vbdrop.Units())
    alive = [one.alive() for one in prunables(model)]
    index = [one.name for one in prunables(model)].index("hidden.gate")
    gone = [~mask for mask in alive]
    gone[index][:16] = True
    saved = counter.before.macs - counter.count_plain(plain_without(model, gone)).macs
    assert float(costs.savings(alive)[index][:16].sum()) == saved


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.head(torch.relu(x + self.body(x)).flatten(1))


def test_a_gate_that_several_layers_share_saves_what_all_of_them_would():
    torch.manual_seed(0)
    model, x = Residual(), torch.randn(2, 1, 4, 4)
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    counter = SizeCounter(model, (x,))
    costs = CostModel(model, counter, "macs")
    found = prunables(model)
    assert [one.entry.mean.numel() for one in found] == [8]  # one gate per channel of the residual stream
    alive = [one.alive() for one in found]
    assert costs.size(alive) == counter.before.macs
    gone = [~mask for mask in alive]
    gone[0][3] = True
    exact = counter.count_plain(plain_without(model, gone)).macs
    assert costs.size([~mask for mask in gone]) == exact
    # the channel leaves and enters the body, so the two savings of its kernel overlap in one
    assert float(costs.savings(alive)[0][3]) == pytest.approx(counter.before.macs - exact, rel=0.1)


def test_gates_are_pressed_by_what_they_cost_in_factors_with_mean_one():
    model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 2))
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=torch.zeros(1, 4))
    counter = SizeCounter(model, (torch.zeros(1, 4),))
    press_by_cost_(model, CostModel(model, counter, "macs"))
    found = prunables(model)
    sizes = torch.tensor([one.entry.mean.numel() for one in found], dtype=torch.float64)
    factors = torch.tensor([one.entry.kl_factor for one in found], dtype=torch.float64)
    assert float((sizes * factors).sum() / sizes.sum()) == pytest.approx(1.0)
    by_size = dict(zip(sizes.tolist(), factors.tolist(), strict=True))
    assert by_size[4.0] / by_size[30.0] == pytest.approx(30 / (4 + 2))  # an input costs 30 products, a unit 4 + 2


def test_times_press_as_the_multiply_adds_do_where_each_takes_as_long():
    """Also on the stream of a residual network, whose gates are in its norms."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), FeedForward(), FeedForward(), nn.LayerNorm(16), nn.Linear(16, 4))
    x = torch.randn(2, 8)
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    counter = SizeCounter(model, (x,))
    layers = {
        site.weight: LayerTimes([1, n], [1, m], [[1e-9, 1e-9 * m], [1e-9 * n, 1e-9 * n * m]], (1, 1))
        for site in counter.facts.products
        for n, m in [(len(site.inputs), len(site.outputs))]
    }
    timing = Timing(1e-5, 1e-5, layers, [], (0.0, 1.0))
    alive = [one.alive() for one in prunables(model)]
    alive[-1][:8] = False  # with half of a block's channels gone
    macs, seconds = CostModel(model, counter, "macs"), CostModel(model, counter, "latency", timing)
    assert any(".norm.gate" in one.name for one in prunables(model))
    for one, by_macs, by_time in zip(prunables(model), macs.savings(alive), seconds.savings(alive), strict=True):
        assert torch.allclose(1e-9 * by_macs, by_time), one.name


def test_a_stream_costs_what_the_rest_of_its_layers_does():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), FeedForward(), nn.LayerNorm(16), nn.Linear(16, 4))
    x = torch.randn(2, 8)
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    counter = SizeCounter(model, (x,))
    costs = CostModel(model, counter, "macs")
    names = [one.name for one in prunables(model)]
    stream, inner = (next(i for i, name in enumerate(names) if part in name) for part in ("norm.gate", "down.gate"))
    alive = [one.alive() for one in prunables(model)]
    alive[inner][4:] = False
    before = size_in(counter.count_plain(plain_without(model, [~mask for mask in alive])), "macs")
    saving = float(costs.savings(alive)[stream][3])
    alive[stream][3] = False
    after = size_in(counter.count_plain(plain_without(model, [~mask for mask in alive])), "macs")
    assert saving == before - after
