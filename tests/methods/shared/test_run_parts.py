"""The parts of a run meet without a gap, also in a run of a few steps."""

import pytest

from vbdrop.methods.shared.run_parts import first_step, started, starts_next
from vbdrop.train.method import Step


def at(index: int, steps: int) -> Step:
    return Step(index, steps, index / steps, 1, steps)


@pytest.mark.parametrize("steps", [2, 3, 7, 1_000])
@pytest.mark.parametrize("share", [0.001, 0.3, 0.5])
def test_a_part_starts_once_and_lasts(steps, share):
    starts = [index for index in range(steps) if starts_next(share, at(index, steps))]
    assert starts == [first_step(share, at(0, steps)) - 1]
    assert [started(share, at(index, steps)) for index in range(steps)] == [index > starts[0] for index in range(steps)]


def test_the_share_is_that_of_the_steps():
    assert first_step(0.3, at(0, 1_000)) == 300
    assert first_step(0.0001, at(0, 1_000)) == 1
