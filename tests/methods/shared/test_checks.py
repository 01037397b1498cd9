"""Errors name the field, what it must be and what it got."""

from types import SimpleNamespace

import pytest

from vbdrop.methods import RigL, VBDGates, VBDWeights
from vbdrop.methods.shared.checks import (
    check_choice,
    check_count,
    check_flag,
    check_not_negative,
    check_positive,
    check_share,
)

NAN = float("nan")


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 2])
def test_a_share_lies_strictly_between_0_and_1(value):
    with pytest.raises(ValueError, match=rf"`rate` of SimpleNamespace must lie between 0 and 1; got {value}\."):
        check_share(SimpleNamespace(rate=value), "rate")


def test_a_share_may_be_0_where_that_is_said():
    check_share(SimpleNamespace(rate=0), "rate", zero=True)
    with pytest.raises(ValueError, match="must be 0 or lie between 0 and 1; got 1"):
        check_share(SimpleNamespace(rate=1), "rate", zero=True)


@pytest.mark.parametrize("check", [check_share, check_positive, check_not_negative])
@pytest.mark.parametrize("value", ["0.5", None, True, NAN, float("inf")])
def test_a_number_must_be_a_finite_number(check, value):
    with pytest.raises(TypeError, match="`x` of SimpleNamespace must be a finite number; got"):
        check(SimpleNamespace(x=value), "x")


def test_positive_and_not_negative_differ_at_0():
    check_not_negative(SimpleNamespace(x=0), "x")
    with pytest.raises(ValueError, match="`x` of SimpleNamespace must be above 0; got 0"):
        check_positive(SimpleNamespace(x=0), "x")
    with pytest.raises(ValueError, match="`x` of SimpleNamespace must be at least 0; got -1"):
        check_not_negative(SimpleNamespace(x=-1), "x")


@pytest.mark.parametrize("value", [0, 1.0, True, "3"])
def test_a_count_is_a_whole_number_from_1(value):
    with pytest.raises(ValueError, match="`n` of SimpleNamespace must be an int >= 1; got"):
        check_count(SimpleNamespace(n=value), "n")


def test_a_choice_lists_what_there_is():
    with pytest.raises(ValueError, match="`per` of SimpleNamespace must be one of 'unit', 'layer'; got 'row'"):
        check_choice(SimpleNamespace(per="row"), "per", ("unit", "layer"))


@pytest.mark.parametrize("value", ["False", "no", 0, 1.0, None])
def test_a_flag_is_true_or_false_and_no_word_that_counts_as_true(value):
    with pytest.raises(TypeError, match="`own` of SimpleNamespace must be True or False; got"):
        check_flag(SimpleNamespace(own=value), "own")


@pytest.mark.parametrize(
    ("method", "field"),
    [(RigL, "dense_output"), (VBDWeights, "mask_variances"), (VBDWeights, "log_sigma2"), (VBDGates, "threshold")],
)
def test_a_word_is_refused_where_a_number_or_a_flag_belongs(method, field):
    with pytest.raises(TypeError, match=f"`{field}` of {method.__name__} must be"):
        method(**{field: "False"})
