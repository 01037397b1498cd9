"""Errors at other thresholds."""

import json

import pytest

from vbdrop.experiments.curves import at_one_size, error_at, threshold_curve

CURVE = ((10.0, 1.0), (100.0, 2.0), (1000.0, 6.0))
FROM_100 = ((100.0, 2.0), (144.0, 3.0))


@pytest.fixture
def swept(tiny, write_record):
    """Writes the record of a network at rising thresholds, of which one is its own: what is left, and the error."""

    def write(points, own):
        record = write_record(tiny())
        sweep = [
            {
                "threshold": k / 2,
                "own": k == own,
                "weights": 100,
                "nonzero": n,
                "compact_weights": 2 * n,
                "error": error,
            }
            for k, (n, error) in enumerate(points)
        ]
        (record.folder / "details.json").write_text(json.dumps({"sweep": sweep}))
        return record

    return write


def test_the_curve_is_that_of_the_details_without_what_has_nothing_left(swept):
    record = swept([(0, 10.0), (1, 9.0), (5, 5.0)], own=2)
    assert threshold_curve(record) == ((20.0, 5.0), (100.0, 9.0))
    assert threshold_curve(record, "compact_weights") == ((10.0, 5.0), (50.0, 9.0))
    (record.folder / "details.json").write_text(json.dumps({"sweep": None}))
    assert threshold_curve(record) == ()
    (record.folder / "details.json").unlink()
    assert threshold_curve(record) == ()


def test_the_curve_begins_with_the_network_itself_unless_larger_ones_are_asked_for(swept):
    points = [(1, 9.0), (4, 4.0), (4, 5.0), (5, 3.0), (10, 2.0)]
    record = swept(points, own=2)
    assert threshold_curve(record) == ((25.0, 5.0), (25.0, 4.0), (100.0, 9.0))
    assert threshold_curve(record, larger=True) == ((10.0, 2.0), (20.0, 3.0), (25.0, 5.0), (25.0, 4.0), (100.0, 9.0))
    assert at_one_size([threshold_curve(record)], [threshold_curve(swept(points, own=1))]) == (25.0, 5.0, 4.0)
    assert threshold_curve(swept([(0, 90.0), (5, 5.0)], own=0)) == ()  # nothing is left of it to be cut


@pytest.mark.parametrize(
    ("ratio", "error"), [(10.0, 1.0), (100.0, 2.0), (10**1.5, 1.5), (10**2.5, 4.0), (9.9, None), (1001.0, None)]
)
def test_between_two_thresholds_the_error_is_straight_over_the_logarithm(ratio, error):
    assert error_at(CURVE, ratio) == (None if error is None else pytest.approx(error))


def test_two_thresholds_of_one_size_are_no_division_by_zero():
    assert error_at(((10.0, 1.0), (10.0, 2.0), (20.0, 3.0)), 10.0) == 1.0


def test_two_groups_are_compared_at_the_largest_size_that_all_can_be_cut_to():
    other = ((120.0, 3.5), (1000.0, 3.5))
    assert at_one_size([FROM_100, other], [FROM_100]) == pytest.approx((120.0, 3.0, 2.5))
    assert at_one_size([CURVE], [CURVE]) == (10.0, 1.0, 1.0)
    assert at_one_size([FROM_100], [((121.0, 3.5), (1000.0, 3.5))]) is None  # too far from its own size
    assert at_one_size([((100.0, 2.0), (105.0, 3.0))], [((110.0, 5.0), (300.0, 5.0))]) is None
    assert at_one_size([], [CURVE]) is None
    assert at_one_size([CURVE], [CURVE, ()]) is None
