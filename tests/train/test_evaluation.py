"""Error, likelihood and calibration against what they are by hand."""

import math

import pytest
import torch
from torch import nn

from vbdrop.train import Batch, calibration_error, evaluate
from vbdrop.train.evaluation import calibration_bins


class Table(nn.Module):
    """Gives the logits that it is given as inputs, plus noise in training."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        torch.rand(1)
        return self.dropout(x)


def test_by_hand():
    probabilities = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
    model = Table().train()
    state = torch.get_rng_state()
    found = evaluate(model, Batch(probabilities.log(), torch.tensor([0, 1, 1])))
    assert (found.examples, found.wrong) == (3, 1)
    assert found.error == pytest.approx(100 / 3)
    assert found.nll == pytest.approx(-(math.log(0.8) + math.log(0.4) + math.log(0.7)) / 3)
    assert found.ece == pytest.approx((0.2 + 0.6 + 0.3) / 3)
    assert model.training
    assert model.dropout.training
    assert torch.equal(torch.get_rng_state(), state)


def test_more_examples_than_a_batch():
    logits = torch.randn(2345, 10)
    targets = torch.randint(10, (2345,))
    found = evaluate(Table(), Batch(logits, targets))
    assert found.wrong == int((logits.argmax(1) != targets).sum())
    assert found.nll == pytest.approx(nn.functional.cross_entropy(logits, targets).item(), rel=1e-5)


def test_a_calibrated_model_has_no_calibration_error_and_an_overconfident_one_has_it():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(100_000, generator=generator)
    right = torch.rand(100_000, generator=generator) < confidence
    assert calibration_error(confidence, right) < 0.01  # 15 bins with a standard error below 0.5 / sqrt(6667) = 0.006
    assert calibration_error(confidence.sqrt(), right) == pytest.approx(2 / 3 - 1 / 2, abs=0.01)
    assert calibration_error(torch.ones(4), torch.tensor([True, True, False, False])) == 0.5


def test_no_examples():
    with pytest.raises(ValueError, match="at least one example"):
        evaluate(Table(), Batch(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)))


def test_the_bins_hold_every_prediction_and_give_the_calibration_error():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(5_000, generator=generator, dtype=torch.float64) ** 3
    right = torch.rand(5_000, generator=generator) < confidence.sqrt()
    found = calibration_bins(confidence, right)
    assert sum(each.count for each in found) == 5_000
    assert [each.confidence for each in found] == sorted(each.confidence for each in found)
    gaps = sum(each.count * abs(each.accuracy - each.confidence) for each in found)
    assert gaps / 5_000 == pytest.approx(calibration_error(confidence, right), rel=1e-9)


def test_outputs_that_are_no_numbers_are_an_error():
    model = nn.Linear(2, 3)
    nn.init.constant_(model.bias, float("nan"))
    with pytest.raises(FloatingPointError, match="not numbers"):
        evaluate(model, Batch(torch.ones(4, 2), torch.zeros(4, dtype=torch.long)))
