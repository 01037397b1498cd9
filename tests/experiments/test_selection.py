"""What is tried, and what is chosen."""

import pytest

from vbdrop.experiments import Row, choose, settings
from vbdrop.methods import METHODS


def result(error, size=0, nll=0.1, outcome="finished"):
    return {"outcome": outcome, "error": error, "nll": nll, "nonzero": size, "compact_weights": 10_000 - size}


def test_the_lowest_error_wins_and_the_likelihood_breaks_a_tie():
    results = [result(1.9), result(1.8, nll=0.2), result(1.8, nll=0.1), result(2.5)]
    assert choose(results, kind="error", margin=None, reference=None) == 2


def test_the_smallest_network_within_the_margin_wins():
    results = [result(1.8, 9000), result(1.9, 5000), result(2.1, 3000), result(2.12, 1000)]
    choice = [choose(results, kind="weights", margin=margin, reference=1.8) for margin in (0.0, 0.1, 0.3, 0.32)]
    assert choice == [0, 1, 2, 3]
    assert choose(results, kind="neurons", margin=0.3, reference=1.8) == 0  # there the first one is the smallest


def test_where_no_setting_is_good_enough_the_best_one_is_taken():
    results = [result(3.0, 100), result(2.6, 300), result(2.6, 200)]
    assert choose(results, kind="weights", margin=0.3, reference=1.8) == 2


def test_a_setting_that_diverged_is_never_chosen():
    diverged = {"outcome": "diverged"}
    assert choose([diverged, result(9.0)], kind="error", margin=None, reference=None) == 1
    assert choose([diverged, result(9.0, 5)], kind="weights", margin=0.1, reference=1.0) == 1
    assert choose([diverged, diverged], kind="error", margin=None, reference=None) is None


def test_a_margin_needs_something_to_be_measured_from():
    with pytest.raises(ValueError, match="`reference` must be the plain network's validation error"):
        choose([result(1.0)], kind="weights", margin=0.3, reference=None)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_at_most_four_settings_and_they_are_its_own(name):
    tried = settings(Row("row", "Row", name), trials=4)
    assert 1 <= len(tried) <= 4
    assert len(set(map(repr, tried))) == len(tried)
    assert all(type(method) is METHODS[name] for method in tried)


def test_a_knob_that_is_fixed_is_not_tried():
    row = Row("row", "Row", "vbd-weights", {"threshold": 2.0})
    assert [(m.kl_weight, m.threshold) for m in settings(row, 4)] == [
        (w, 2.0) for w in METHODS["vbd-weights"].knobs["kl_weight"]
    ]
    assert len(settings(Row("row", "Row", "vbd-weights", {"kl_weight": 3.0}), 4)) == 1


def test_of_a_large_grid_even_steps_are_tried(monkeypatch):
    knobs = {"kl_weight": (1.0, 2.0, 3.0), "threshold": (0.0, 1.0, 2.0)}
    monkeypatch.setattr(METHODS["vbd-weights"], "knobs", knobs)
    tried = [(m.kl_weight, m.threshold) for m in settings(Row("row", "Row", "vbd-weights"), 5)]
    assert tried == [(1, 0), (1, 2), (2, 1), (3, 0), (3, 2)]
    assert len(settings(Row("row", "Row", "vbd-weights"), 1)) == 1
