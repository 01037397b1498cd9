"""The path from the whole model to the target."""

import pytest

from vbdrop.targets.path import Path
from vbdrop.targets.target import Target


def test_it_waits_descends_by_equal_factors_and_stays():
    path = Path.of(Target(weights=16, train=0.2, refine=0.4), before=160.0, limit=10.0)
    assert [path(share) for share in (0.0, 0.2)] == [160.0, 160.0]
    quarters = [path(0.2 + 0.4 * quarter) for quarter in (0.25, 0.5, 0.75, 1.0)]
    assert quarters == pytest.approx([80.0, 40.0, 20.0, 10.0])
    assert path(0.9) == pytest.approx(10.0)


def test_stages():
    path = Path(0.2, 0.3, 100.0, 10.0)
    assert [path.stage(share) for share in (0.0, 0.19, 0.2, 0.69, 0.7, 1.0)] == [
        "train", "train", "press", "press", "refine", "refine",
    ]  # fmt: skip


def test_without_a_press_stage_the_descent_is_a_jump():
    path = Path(0.5, 0.5, 100.0, 10.0)
    assert path.pressed(0.1) == 1.0
    assert path.stage(0.5) == "refine"
