"""The schedules against the papers' formulas."""

import pytest

from vbdrop.train import SCHEDULES, schedule


@pytest.mark.parametrize("epoch", [0, 1, 99, 100, 101, 150, 199])
def test_the_papers_schedules(epoch):
    progress = epoch / 200
    assert schedule("late-linear")(progress) == pytest.approx(min(2 - epoch / 100, 1))
    assert schedule("linear")(progress) == pytest.approx((200 - epoch) / 200)
    assert schedule("constant")(progress) == 1


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_starts_at_one_never_rises_and_stays_positive(name):
    factors = [SCHEDULES[name](step / 1000) for step in range(1000)]
    assert factors[0] == 1
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] > 0


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="`schedule` must be one of constant, linear, late-linear; got 'cosine'"):
        schedule("cosine")
