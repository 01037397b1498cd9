"""Which trials a choice needs."""

import pytest

from vbdrop.experiments import PROTOCOLS, settings
from vbdrop.experiments.search import NeededTrials, along_a_scale, halving, is_scale, survivors


def run_to_the_end(count, errors, limit, steps=50):
    """Bisect as a table does: a trial has no result until it was asked for; return what was asked in the end."""
    known = {}

    def good(index, seeds):
        if known.get(index, 0) < seeds:
            return None
        return sum(errors[index][:seeds]) / seeds <= limit

    for _ in range(steps):
        asked = along_a_scale(count, good)
        if asked.decided:
            return asked
        assert any(known.get(index, 0) < seeds for index, seeds in asked.seeds.items()), "it waits for something"
        known = dict(asked.seeds)
    raise AssertionError("it does not end")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8])
def test_the_strongest_that_is_good_enough_and_its_neighbour_are_found(count):
    for boundary in range(-1, count):
        errors = [(1.0, 1.0) if index <= boundary else (2.0, 2.0) for index in range(count)]
        asked = run_to_the_end(count, errors, limit=1.5)
        weaker = max(boundary, 0)
        assert {weaker, min(weaker + 1, count - 1)} <= set(asked.finalists)
        assert sum(asked.seeds.values()) <= {1: 2, 2: 4, 3: 5, 4: 5, 6: 5, 8: 6}[count]


def test_the_means_of_both_seeds_decide_where_the_boundary_is():
    errors = [(1.0, 1.0)] * 3 + [(1.2, 1.9)] + [(1.4, 1.8)] + [(2.0, 2.0)]
    assert run_to_the_end(6, errors, limit=1.5).seeds == {2: 2, 4: 2, 3: 2, 5: 2}  # down twice: 4 and 3 are not good
    errors = [(1.0, 1.0)] * 3 + [(1.6, 1.2), (1.6, 1.3), (2.0, 2.0)]
    assert run_to_the_end(6, errors, limit=1.5).seeds == {2: 2, 4: 2, 3: 2, 5: 2}  # up twice: 3 and 4 are good


def test_a_better_setting_than_asked_for_is_not_looked_for_beyond_the_grid():
    assert run_to_the_end(4, [(9.0, 9.0)] * 4, limit=1.5).finalists == [0, 1]
    assert run_to_the_end(4, [(1.0, 1.0)] * 4, limit=1.5).finalists == [2, 3]


def test_half_of_the_settings_get_a_second_seed_and_at_least_two():
    assert [survivors(count) for count in (2, 3, 4, 5, 6, 8)] == [2, 2, 2, 3, 3, 4]
    assert halving(range(4), lambda index, seeds: index != 3, lambda tried: list(tried)) == NeededTrials(
        {0: 1, 1: 1, 2: 1, 3: 1}, decided=False, more=2
    )
    asked = halving(range(4), lambda index, seeds: True, lambda tried: [2])  # all others diverged
    assert (asked.finalists, asked.decided) == ([2], True)


def test_every_row_about_size_is_tried_along_one_scale_and_no_other():
    for protocol in PROTOCOLS.values():
        for row in protocol.rows:
            if row.method != "plain":
                assert is_scale(settings(row, protocol.columns[0].trials)) == (protocol.kind != "error"), row.key
