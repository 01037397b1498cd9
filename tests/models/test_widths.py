from fractions import Fraction

import numpy as np
import pytest

from vbdrop import models
from vbdrop.models.widths import scaled


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mlp", {"units": 0}, "`units` must be a number of units, an int >= 1; got 0"),
        ("mlp", {"units": 1.5}, "`units` .* got 1.5"),
        ("mlp", {"units": True}, "`units` .* got True"),
        ("lenet-300-100", {"inputs": 0}, "`inputs` .* got 0"),
        ("lenet-5", {"classes": -1}, "`classes` .* got -1"),
        (
            "kingma-cnn",
            {"scale": 0.0},
            r"`scale` must be a number that leaves every layer at least one unit, 32 \* scale >= 1; got 0.0",
        ),
        ("kingma-cnn", {"scale": float("nan")}, "`scale` .* got nan"),
        ("kingma-cnn", {"scale": "2"}, "`scale` must be a number .* got '2'"),
        ("vgg", {"width": -1.0}, "`width` .* got -1.0"),
        ("vgg", {"width": None}, "`width` must be a number .* got None"),
        ("vgg", {"width": True}, "`width` must be a number .* got True"),
    ],
)
def test_impossible_widths_are_refused(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        models.build(name, **arguments)


def test_a_factor_may_be_any_real_number():
    assert scaled(32, "scale", np.float32(1.5)) == scaled(32, "scale", Fraction(3, 2)) == 48
