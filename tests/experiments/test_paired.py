"""Paired differences over seeds, against SciPy."""

import math

import pytest
from scipy import stats

from vbdrop.experiments.paired import COUNTED, LEAST, holm, paired, t_quantile, t_two_sided


@pytest.mark.parametrize("degrees", [*range(1, 12), 30, 31])
def test_students_t_is_that_of_scipy(degrees):
    for t in (0.0, 0.3, 1.0, -2.5, 12.0, 100.0):
        assert t_two_sided(t, degrees) == pytest.approx(2 * stats.t.sf(abs(t), degrees), abs=1e-12)
    assert t_quantile(0.975, degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-9)


def test_the_interval_and_the_test_are_those_of_the_paired_t_test():
    first, second = [1.72, 1.81, 1.64, 1.70], [1.95, 1.88, 1.97, 1.80]
    found = paired(dict(enumerate(first)), dict(enumerate(second)))
    test = stats.ttest_rel(first, second)
    low, high = test.confidence_interval(0.95)
    assert (found.mean, found.low, found.high, found.p, found.n) == pytest.approx(
        (sum(first) / 4 - sum(second) / 4, low, high, test.pvalue, 4)
    )


def test_only_seeds_that_both_have_are_pairs():
    found = paired({0: 1.0, 1: 2.0, 7: 9.0}, {1: 1.5, 0: 1.5, 2: 0.0})
    assert (found.mean, found.n) == (0.0, 2)
    assert paired({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize("n", range(1, LEAST))
def test_a_few_pairs_have_no_interval(n):
    found = paired(dict.fromkeys(range(n), 1.0), dict.fromkeys(range(n), 2.0))
    assert (found.low, found.high, found.p) == (None, None, None)
    assert str(found) == f"-1.00 (n = {n}, too few)"


def test_pairs_that_differ_by_the_same_amount():
    same, more = dict.fromkeys(range(3), 1.0), dict.fromkeys(range(3), 2.0)
    assert (paired(same, same).p, paired(same, more).p) == (1.0, 0.0)
    assert paired(same, same, COUNTED).p == 1.0
    counted = paired(same, more, COUNTED)
    assert counted.p == pytest.approx(2 * stats.t.sf(3**0.5 / COUNTED, 2))
    assert counted.high - counted.mean == pytest.approx(stats.t.ppf(0.975, 2) * COUNTED / 3**0.5)
    assert paired({0: 1.0, 1: 2.0, 2: 4.0}, same, COUNTED) == paired({0: 1.0, 1: 2.0, 2: 4.0}, same)


def test_a_network_with_nothing_left_decides_nothing():
    found = paired({0: math.inf, 1: 1.0, 2: 1.0}, {0: 1.0, 1: 1.0, 2: 1.0})
    assert (found.mean, found.p) == (math.inf, None)


def test_holm_is_never_below_the_p_value_and_keeps_the_order():
    values = [0.2, 0.001, 0.03, 0.03]
    assert holm(values) == pytest.approx([0.2, 0.004, 0.09, 0.09])
    assert holm([]) == []
