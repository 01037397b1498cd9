"""The targets of ``vbdrop demo``; tests/cli/test_demo.py runs them."""

import re

import pytest
import torch
from torch import nn

import vbdrop as library
from vbdrop.cli.demo_targets import GOALS, _latency, in_words


def test_it_asks_for_fifty_times_fewer_weights_and_for_a_faster_convolutional_network():
    weights, macs = GOALS
    assert weights.model is None
    assert weights.target.weights >= 50
    assert macs.model == "lenet-5"
    assert macs.target.macs > 1
    assert macs.timed


def test_latency_is_measured_in_both_runtimes(tmp_path):
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    x = torch.randn(60, 6)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))
    result = library.shrink(model, (x, (x[:, 0] > 0).long()), target=library.Target(macs=2), epochs=2)
    rows = _latency(model, result, tmp_path / "small.onnx")
    assert [row[0] for row in rows] == ["one digit, PyTorch", "one digit, ONNX Runtime"]
    assert all(re.fullmatch(r"[\d.]+ µs", cell) for row in rows for cell in row[1:3])


def test_a_network_that_became_slower_is_not_called_faster():
    assert in_words(2.04) == "2.0 times faster"
    assert in_words(0.5) == "2.0 times slower"
