import math
from itertools import pairwise

import pytest

from vbdrop import Warmup


@pytest.mark.parametrize(
    ("warmup", "values"),
    [
        (Warmup(), {0: 1, 7: 1}),
        (Warmup(hold=2), {0: 0, 1.99: 0, 2: 1, 3: 1}),
        (Warmup(ramp=4), {0: 0, 1: 0.25, 2: 0.5, 3.5: 0.875, 4: 1, 9: 1}),
        (Warmup(hold=5, ramp=15), {0: 0, 5: 0, 8: 0.2, 12.5: 0.5, 20: 1, 21: 1}),
        (Warmup(hold=5, ramp=15, shape="cosine"), {0: 0, 5: 0, 10: 0.25, 12.5: 0.5, 15: 0.75, 20: 1, 21: 1}),
        (Warmup(hold=0.5, ramp=0.25), {0.5: 0, 0.625: 0.5, 0.75: 1}),
    ],
    ids=str,
)
def test_it_holds_then_rises_then_stays(warmup, values):
    assert {epoch: warmup(epoch) for epoch in values} == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize(("shape", "steepest"), [("linear", 1.0), ("cosine", math.pi / 2)])
def test_it_rises_without_a_jump(shape, steepest):
    warmup = Warmup(hold=3, ramp=10, shape=shape)
    values = [warmup(step / 1000) for step in range(16_000)]
    rises = [after - before for before, after in pairwise(values)]
    assert min(rises) >= 0
    assert max(rises) <= steepest / 10_000 + 1e-12
    assert (values[0], values[-1]) == (0, 1)


def test_the_cosine_starts_and_ends_smoothly():
    warmup = Warmup(ramp=1, shape="cosine")
    assert warmup(0.001) < 1e-5
    assert 1 - warmup(0.999) < 1e-5


@pytest.mark.parametrize("name", ["hold", "ramp"])
@pytest.mark.parametrize("value", [-1, math.inf, math.nan, "5", None, True])
def test_a_wrong_length_is_named(name, value):
    with pytest.raises(ValueError, match=f"`{name}` of Warmup must be a number of epochs, at least 0; got {value!r}"):
        Warmup(**{name: value})


def test_a_wrong_shape_is_named():
    with pytest.raises(ValueError, match="`shape` of Warmup must be 'linear' or 'cosine'; got 'exponential'"):
        Warmup(shape="exponential")
