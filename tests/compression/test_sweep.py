import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.compression import compress, sweep


def test_a_threshold_gives_the_score_and_the_size_of_the_small_model():
    model = nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 2)).train()
    vbdrop.convert_(model, vbdrop.Weights())
    with torch.no_grad():
        for layer in (model[0], model[2]):
            spread = torch.linspace(-5, 5, layer.weight.numel()).view_as(layer.weight)
            layer.log_sigma2.copy_(spread + layer.weight.square().log())
    seen = []

    def evaluate(small):
        seen.append((type(small.get_submodule("0")), small.training, torch.is_grad_enabled()))
        return float(len(seen))

    points = sweep(model, torch.randn(3, 10), evaluate, [5.5, 0, -1])
    assert [point.threshold for point in points] == [5.5, 0.0, -1.0]
    # at 0 the units 2 and 3 are constants, and so are the weights that read them
    assert [point.nonzeros for point in points][:2] == [48, 22]
    assert points[2].nonzeros < 22
    assert [point.score for point in points] == [1, 2, 3]
    assert [point.weights for point in points] == [48] * 3
    assert points[0].bytes == 48 * 4 + 24  # and six biases
    assert [point.compression for point in points][:2] == [1, 48 / 22]
    assert seen == [(nn.Linear, False, False)] * 3
    assert model.training


@torch.no_grad()
def test_the_counts_are_those_of_compress_at_the_same_threshold():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))
    vbdrop.convert_(model, vbdrop.Units())
    model[2].gate.log_sigma2[:48] = 5
    x = torch.randn(4, 16)
    (point,) = sweep(model, x, lambda small: float(small(x).abs().max()), [0.0])
    after = compress(model, x, 0.0).summary().after
    assert (point.nonzeros, point.bytes) == (after.nonzeros, after.bytes) == (304, 1292)
    assert point.score == pytest.approx(float(model.eval()(x).abs().max()), rel=1e-5)


def test_what_is_no_function_is_named():
    with pytest.raises(TypeError, match="`evaluate` must be a function of a model; got list"):
        sweep(nn.Linear(2, 2), torch.zeros(1, 2), [0.0], [0.0])


@pytest.mark.parametrize("thresholds", [3, None, ["high"]])
def test_thresholds_that_are_no_numbers_are_named(thresholds):
    with pytest.raises(TypeError, match="`thresholds` must be a list of numbers; got "):
        sweep(nn.Linear(2, 2), torch.zeros(1, 2), lambda small: 0.0, thresholds)


@pytest.mark.parametrize(("found", "got"), [(None, "None"), (torch.zeros(2), "Tensor"), ({}, "dict")])
def test_a_score_that_is_no_number_is_named(found, got):
    with pytest.raises(TypeError, match=f"`evaluate` must return a number; got {got}"):
        sweep(nn.Linear(2, 2), torch.zeros(1, 2), lambda small: found, [0.0])
