"""What is tried, and what is chosen."""

import pytest

from vbdrop.experiments import PROTOCOLS, Row, make_method, ranked, settings
from vbdrop.experiments.selection import hopeful, mean_result, simplicity
from vbdrop.methods import METHODS


def result(error, size=0, nll=0.1, outcome="finished"):
    figures = {"error": error, "nll": nll, "nonzero": size, "compact_weights": 10_000 - size, "examples": 10_000}
    return {"outcome": outcome, **figures}


def by_error(results, **others):
    return ranked(results, kind="error", margin=None, reference=None, **others)


def test_the_lowest_error_comes_first():
    assert by_error([result(1.9), result(1.8), result(2.5), result(1.7)]) == [3, 1, 0, 2]


def test_errors_that_counting_cannot_tell_apart_are_equal_and_the_simpler_setting_wins():
    """A quarter of the standard error of 2 % among 10,000 is 0.035 points."""
    results = [result(2.03), result(2.0), result(2.04)]
    assert by_error(results, simplest=[1, 2, 0]) == [0, 1, 2]
    assert by_error(results, simplest=[2, 1, 0]) == [1, 2, 0]  # 2.04 is no tie with 2.00, but one with 2.03
    assert by_error(results) == [0, 1, 2]  # equally simple: the first in the grid
    assert by_error([result(40.1), result(40.0)], simplest=[0, 1]) == [0, 1]  # 0.12 points at 40 %


def test_the_smallest_network_within_the_margin_wins():
    results = [result(1.8, 9000), result(1.9, 5000), result(2.1, 3000), result(2.12, 1000)]
    first = [ranked(results, kind="weights", margin=margin, reference=1.8)[0] for margin in (0.0, 0.1, 0.3, 0.32)]
    assert first == [0, 1, 2, 3]
    assert ranked(results, kind="neurons", margin=0.3, reference=1.8)[0] == 0  # there the first one is the smallest
    assert ranked(results, kind="weights", margin=0.3, reference=1.8) == [2, 1, 0, 3]  # then what is above the margin


def test_networks_of_one_size_are_equal_and_the_simpler_setting_wins():
    results = [result(1.9, 1000), result(1.8, 1015), result(1.8, 1030)]
    assert ranked(results, kind="weights", margin=0.3, reference=1.8, simplest=[2, 1, 0])[0] == 1


def test_where_no_setting_is_good_enough_the_lowest_error_is_taken():
    results = [result(3.0, 100), result(2.6, 300), result(2.8, 200)]
    assert ranked(results, kind="weights", margin=0.3, reference=1.8) == [1, 2, 0]


def test_a_setting_that_diverged_is_never_chosen():
    diverged = {"outcome": "diverged"}
    assert by_error([diverged, result(9.0)]) == [1]
    assert ranked([diverged, result(9.0, 5)], kind="weights", margin=0.1, reference=1.0) == [1]
    assert by_error([diverged, diverged]) == []
    assert mean_result([result(2.0), diverged]) == diverged


def test_the_means_over_the_seeds_decide():
    mean = mean_result([result(1.0, 100), result(2.0, 300)])
    assert (mean["error"], mean["nonzero"], mean["examples"]) == (1.5, 200, 20_000)


def test_only_what_is_clearly_worse_has_no_hope_and_two_settings_always_have():
    """Two standard errors of the difference of two errors of 40 % among 10,000 are 1.39 points."""
    results = [result(40.0), result(41.3), result(41.5), result(50.0)]
    assert hopeful(results, [0, 1, 2, 3]) == [0, 1]
    assert hopeful(results, [0, 3]) == [0, 3]
    assert hopeful(results, [1, 2]) == [1, 2]  # without those that diverged
    assert hopeful(results, []) == []


def test_a_margin_needs_something_to_be_measured_from():
    with pytest.raises(ValueError, match="`reference` must be the plain network's validation error"):
        ranked([result(1.0)], kind="weights", margin=0.3, reference=None)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda protocol: protocol.name)
def test_every_method_of_a_column_has_the_same_number_of_trials(protocol):
    for column in protocol.columns:
        if column.select_on is None:
            counts = {row.key: len(settings(row, column.trials)) for row in protocol.rows if row.method != "plain"}
            assert set(counts.values()) == {column.trials}, counts
    for row in protocol.rows:
        tried = settings(row, 100)
        assert len(set(map(repr, tried))) == len(tried)
        assert all(type(method) is METHODS[row.method] for method in tried)


def test_vd_and_vbd_as_regularisers_are_tried_with_the_same_settings():
    def tried(protocol, key):
        names = ("per", "kl_weight", "rate", "input_rate")
        return [
            tuple(getattr(method, name) for name in names)
            for method in settings(protocol.row(key), protocol.columns[0].trials)
        ]

    for number in (1, 2, 3):
        protocol = PROTOCOLS[number]
        assert tried(protocol, "vd") == tried(protocol, "vbd")
        assert {method.approximation for method in settings(protocol.row("vd"), 8)} == {"sigmoid"}  # no bound on alpha
        assert {(m.per, m.approximation) for m in settings(protocol.row("vd-kingma"), 8)} == {("layer", "cubic")}


def test_a_knob_that_is_fixed_is_not_tried():
    row = Row("row", "Row", "vbd-weights", {"threshold": 2.0})
    assert [(m.kl_weight, m.threshold) for m in settings(row, 6)] == [
        (w, 2.0) for w in METHODS["vbd-weights"].knobs["kl_weight"]
    ]
    assert len(settings(Row("row", "Row", "vbd-weights", {"kl_weight": 3.0}), 4)) == 1


def test_of_a_large_grid_even_steps_are_tried():
    row = Row("row", "Row", "vbd-weights", knobs={"kl_weight": (1.0, 2.0, 3.0), "threshold": (0.0, 1.0, 2.0)})
    tried = [(m.kl_weight, m.threshold) for m in settings(row, 5)]
    assert tried == [(1, 0), (1, 2), (2, 1), (3, 0), (3, 2)]
    assert len(settings(row, 1)) == 1


def test_the_simpler_setting_changes_fewer_defaults():
    assert [simplicity(make_method("vbd-weights", hyper)) for hyper in ({}, {"kl_weight": 1.0}, {"refine": 0.1})] == [
        0,
        1,
        1,
    ]
