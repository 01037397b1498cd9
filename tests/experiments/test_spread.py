"""Where the recorded seeds of a setting lie."""

from dataclasses import replace

import pytest

from vbdrop.experiments.spread import spreads


@pytest.fixture
def seeds(tiny, write_record, tmp_path, reseeded):
    """Three seeds of a setting, and one of another."""
    config = tiny("vbd-weights")
    errors = ((0, 1.0, 80.0), (1, 2.0, 90.0), (2, 3.0, 100.0))
    records = [write_record(reseeded(config, seed), error=error, ratio=ratio) for seed, error, ratio in errors]
    write_record(replace(config, n_train=299), error=50.0)
    return config, records, lambda **figures: write_record(config, tmp_path / "again", **figures)


def test_the_interval_is_three_deviations_of_the_seeds_around_their_mean(seeds):
    _, records, again = seeds
    error, ratio = spreads(records[0], again(error=4.9, ratio=61.0))
    assert (error.low, error.high, error.seeds) == (pytest.approx(-1.0), pytest.approx(5.0), 3)
    assert (ratio.low, ratio.high) == (pytest.approx(60.0), pytest.approx(120.0))
    assert error.within
    assert ratio.within
    error, ratio = spreads(records[0], again(error=5.1, ratio=59.0))
    assert not error.within
    assert not ratio.within
    assert str(error) == "error 5.10, outside -1.00 to 5.00 of 3 recorded seeds"


def test_one_seed_has_the_deviation_of_counting(tiny, write_record, tmp_path):
    record = write_record(tiny("vbd-weights"), error=2.0)
    again = write_record(tiny("vbd-weights"), tmp_path / "again", error=2.5, ratio=1.0)
    (error,) = spreads(record, again)  # nothing is smaller, so there is no ratio to compare
    deviation = 100 * (0.02 * 0.98 / 5000) ** 0.5
    assert error.high == pytest.approx(2 + 3 * deviation)
    assert error.seeds == 1


def test_a_run_that_diverged_has_no_spread(seeds):
    _, records, again = seeds
    assert spreads(records[0], again(outcome="diverged")) == ()
