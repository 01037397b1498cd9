"""Times of whole models: measured against the original, and modelled between the whole and the smallest."""

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.targets.layer_times import LayerTimes, time_layer
from vbdrop.targets.prunable import plain_without, prunables
from vbdrop.targets.sizes import SizeCounter
from vbdrop.targets.stopwatch import Stopwatch, Timing


def network(width=512):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))


def test_a_small_model_is_faster_by_the_clock():
    watch = Stopwatch(network().eval(), (torch.rand(8, 256),), {}, "torch", 1)
    before, reference = watch.whole()
    assert before == pytest.approx(reference, rel=0.5)  # PyTorch is its own reference
    assert watch.seconds(network(16).eval(), reference) < before
    assert watch.seconds(network(16).eval(), 10 * reference) > before  # on a machine that was ten times slower


def test_the_line_goes_through_what_was_measured():
    model = network(64)
    vbdrop.convert_(model, vbdrop.Units())
    x = torch.rand(8, 256)
    counter = SizeCounter(model, (x,))
    watch = Stopwatch(counter.plain, (x,), {}, "torch", 1)
    gone = [torch.ones_like(one.alive()) for one in prunables(model)]
    for mask in gone:
        mask[0] = False
    smallest = plain_without(model, gone)
    timing = Timing.of(watch, counter, smallest)
    assert timing.seconds(counter.before.shapes) == pytest.approx(timing.before)
    assert timing.seconds(counter.count_plain(smallest).shapes) <= timing.before
    assert Timing.from_data(timing.as_data()) == timing


def test_a_layer_that_is_gone_takes_no_time_and_a_transposed_one_has_its_inputs_first():
    times = LayerTimes([1, 4], [1, 2], [[1.0, 2.0], [4.0, 8.0]], (1, 1))
    timing = Timing(9.0, 9.0, {"a.weight": times, "b.weight": times}, ["b.weight"], (1.0, 1.0))
    assert timing.seconds({"a.weight": (2, 4, 3, 3), "b.weight": (4, 2, 3, 3)}) == 1 + 8 + 8
    assert timing.seconds({"a.weight": (2, 4)}) == 1 + 8


def test_a_transposed_convolution_with_groups_takes_the_share_of_its_channels_that_is_left():
    layer = nn.ConvTranspose2d(8, 16, 3, groups=8)
    times = time_layer(layer, (1, 8, 6, 6), "torch")
    timing = Timing(9.0, 9.0, {"weight": times}, ["weight"], (0.0, 1.0))
    assert tuple(layer.weight.shape) == (8, 2, 3, 3)
    assert timing.seconds({"weight": (8, 2, 3, 3)}) == times(8, 16) > 0
    assert timing.seconds({"weight": (2, 2, 3, 3)}) == pytest.approx(times(8, 16) / 4)
