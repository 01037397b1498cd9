import math
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from vbdrop.exporting.c_activations import ACTIVATIONS, literal
from vbdrop.exporting.errors import ExportError

CALLS = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 2.0),
    "clamp": lambda x: x.clamp(-1.5, 0.5),
    "clamp_min": lambda x: torch.clamp_min(x, -0.25),
    "clamp_max": lambda x: torch.clamp_max(x, 0.25),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "threshold": lambda x: F.threshold(x, 0.1, -2.0),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda x: F.softplus(x, beta=2.0, threshold=5.0),
    "gelu": lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "log_sigmoid": F.logsigmoid,
    "abs": torch.abs,
    "neg": torch.neg,
    "exp": lambda x: torch.exp(x.clamp(max=3.0)),
    "log": lambda x: torch.log(x.abs() + 0.1),
    "sqrt": lambda x: torch.sqrt(x.abs()),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.1),
    "square": torch.square,
    "reciprocal": lambda x: torch.reciprocal(x.abs() + 0.1),
    "pow": lambda x: x.pow(2) + x.abs().pow(1.5),
}


class Everything(nn.Module):
    def forward(self, x):
        return torch.cat([call(x) for call in CALLS.values()], 1)


def test_every_activation_gives_what_torch_gives(as_c):
    assert set(CALLS) == set(ACTIVATIONS)
    values = torch.cat([torch.linspace(-8, 8, 33), torch.tensor([-90.0, -30.0, 30.0, 90.0])])
    actual = as_c(Everything(), values[:, None]).T
    for name, call, row in zip(CALLS, CALLS.values(), actual, strict=True):
        torch.testing.assert_close(
            row, call(values), rtol=2e-6, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_a_value_that_is_not_a_number_goes_through(as_c):
    class Comparisons(nn.Module):
        def forward(self, x):
            return torch.cat([torch.relu(x), F.relu6(x), F.leaky_relu(x), F.threshold(x, 0.0, 0.0), F.elu(x)], 1)

    assert as_c(Comparisons(), torch.tensor([[math.nan]])).isnan().all()


def test_infinite_values_give_what_torch_gives(as_c):
    # GELU at +inf aside: torch gives NaN or infinity, depending on the size of the tensor; C gives infinity
    calls = [F.hardswish, F.hardsigmoid, F.silu, F.mish, torch.relu, F.elu, F.softplus, torch.sigmoid, torch.tanh]

    class Several(nn.Module):
        def forward(self, x):
            return torch.cat([call(x) for call in calls], 1)

    x = torch.tensor([[-math.inf], [math.inf], [3e38], [-3e38], [math.nan]])
    torch.testing.assert_close(as_c(Several(), x), Several()(x), rtol=2e-6, atol=1e-6, equal_nan=True)
    assert as_c(nn.GELU(), x[:2]).isnan().tolist() == [[True], [False]]


def test_a_power_that_is_a_tensor_is_refused(as_c):
    class Power(nn.Module):
        def forward(self, x):
            return x.pow(torch.tensor([2.0, 3.0]))

    with pytest.raises(ExportError, match=r"aten\.pow.*not a number"):
        as_c(Power(), torch.ones(1, 2))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_literal_is_the_same_float_again(value):
    text = literal(value)
    assert text[-1] == "f"
    assert "." in text or "e" in text
    assert np.float32(float(Fraction(text[:-1]))) == np.float32(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.inf, "INFINITY"), (-math.inf, "-INFINITY"), (math.nan, "NAN"), (np.float64(1e39), "INFINITY")],
)
def test_what_is_not_finite_has_its_name_in_math_h(value, text):
    assert literal(value) == text


@pytest.mark.parametrize(
    "bounds",
    [
        (-math.inf, 1.0),
        (0.0, math.inf),
        (math.inf, None),
        (None, -math.inf),
        (math.nan, 1.0),
        (0.0, math.nan),
        (2.0, 1.0),
    ],
    ids=str,
)
def test_a_clamp_to_any_bounds_gives_what_torch_gives(as_c, bounds):
    class Clamp(nn.Module):
        def forward(self, x):
            return x.clamp(*bounds)

    x = torch.tensor([[-2.0, 0.5, 3.0, math.inf, math.nan]])
    torch.testing.assert_close(as_c(Clamp(), x), x.clamp(*bounds), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("low", [torch.tensor(0.5), torch.tensor([0.5]), torch.tensor([[0.5]])], ids=str)
def test_a_clamp_to_a_tensor_of_one_number_gives_what_torch_gives(as_c, low):
    class Clamp(nn.Module):
        def forward(self, x):
            return x.clamp(min=low)

    x = torch.tensor([[-2.0, 0.5, 3.0]])
    assert torch.equal(as_c(Clamp(), x), x.clamp(min=low))


@pytest.mark.parametrize(
    ("clamp", "reason"),
    [
        (lambda x: x.clamp(min=torch.tensor([0.5, 1.0])), "one of its arguments is not a number"),
        (lambda x: x.clamp(max=2 * x), "one of its arguments is not a number"),
        (lambda x: x.clamp(min=torch.tensor([[[0.5]]])), "it is broadcast to a larger shape"),
    ],
    ids=["two numbers", "the input", "more axes"],
)
def test_a_clamp_to_anything_else_is_refused(as_c, clamp, reason):
    class Clamp(nn.Module):
        def forward(self, x):
            return clamp(x)

    with pytest.raises(ExportError, match=rf"aten\.clamp.*{reason}"):
        as_c(Clamp(), torch.ones(1, 2))


def test_a_table_with_values_that_are_not_finite_compiles(as_c):
    values = torch.tensor([[math.inf, -math.inf, math.nan, 0.5]])

    class Joined(nn.Module):
        def forward(self, x):
            return torch.cat([x, values.expand(x.shape[0], 4)], 1)

    expected = torch.tensor([[1.0, math.inf, -math.inf, math.nan, 0.5]])
    torch.testing.assert_close(as_c(Joined(), torch.ones(1, 1)), expected, rtol=0, atol=0, equal_nan=True)
