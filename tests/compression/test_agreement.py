import pytest
import torch
from torch import nn

from vbdrop.compression.agreement import disagreement


class Gives(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return self.value(x)


X = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda x: x * (1 + 1e-5), None),
        (lambda x: x * 1.01, "differs by 0.02, where the largest is 2"),
        (lambda x: x * float("nan"), "differs"),
        (lambda x: x[:1], "shape"),
        (lambda x: (x, x), "2 outputs"),
        (lambda x: x.view(3), "its forward fails"),
        (lambda x: 3, "shape"),
    ],
)
def test_differences_are_said(other, message):
    said = disagreement(Gives(lambda x: x), Gives(other), (X,), {})
    assert said is None if message is None else message in said


def test_rounding_is_allowed_by_precision():
    double = X.double()
    assert disagreement(Gives(lambda x: x), Gives(lambda x: x * (1 + 1e-7)), (double,), {}) is not None
    assert disagreement(Gives(lambda x: x), Gives(lambda x: x * 1.01), (X.half(),), {}) is None


def test_outputs_that_are_not_finite_have_to_be_the_same():
    model = Gives(lambda x: torch.stack([x[0] / 0, x[0] * float("nan"), x[1]]))
    assert disagreement(model, model, (X,), {}) is None
    assert disagreement(model, Gives(lambda x: torch.stack([x[0], x[0], x[1]])), (X,), {}) is not None


def test_outputs_that_are_no_floats():
    model = Gives(lambda x: (x.long(), "word"))
    assert disagreement(model, model, (X,), {}) is None
    assert "whole numbers" in disagreement(model, Gives(lambda x: (x.long() + 1, "word")), (X,), {})
    assert "word" in disagreement(model, Gives(lambda x: (x.long(), "other")), (X,), {})
