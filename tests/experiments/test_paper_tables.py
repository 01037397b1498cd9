"""The tables of the paper: complete, and the same budget for every row."""

from pathlib import Path

import pytest

from vbdrop.experiments import PROTOCOLS, Book, protocol_of, published_in, resolve, settings, table
from vbdrop.experiments.table_text import notes
from vbdrop.methods import METHODS


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("number", PROTOCOLS)
def test_every_run_of_a_table_has_settings(number, quick):
    protocol = protocol_of(number, quick=quick)
    for row in protocol.rows:
        for column in protocol.columns:
            for method in settings(row, column.trials):
                config = resolve(
                    method, model=column.model, model_args=column.model_args, data=column.data, checksum="",
                    normalise=column.normalise, budget=column.budget_of(method, seed=0),
                )  # fmt: skip
                assert config.build_method() == method
    assert protocol.reference.method == "plain"
    for column in protocol.columns:
        if column.select_on is not None:
            assert protocol.column(column.select_on).select_on is None


def test_the_tables_hold_every_method():
    rows = {row.method for protocol in PROTOCOLS.values() for row in protocol.rows}
    assert rows == set(METHODS)
    for number in (1, 2, 3):
        assert all(METHODS[row.method].family == "regulariser" for row in PROTOCOLS[number].rows)


def test_what_the_paper_says_is_kept():
    assert [column.model_args["units"] for column in protocol_of(1).columns] == [100, 340, 580, 820, 1060]
    assert [column.model_args["scale"] for column in protocol_of(2).columns] == [1, 1.5, 2]
    assert {column.budget.epochs for column in protocol_of(1).columns} == {50}
    assert all(column.n_valid == 5000 and column.n_train is None for p in PROTOCOLS.values() for column in p.columns)


def test_where_a_table_has_fewer_epochs_than_the_paper_it_says_so():
    published = {1: 50, 2: 100, 3: 100}
    for number, epochs in published.items():
        fewer = any(column.budget.epochs < epochs for column in protocol_of(number).columns)
        said = [note for note in notes(table(Book(protocol_of(number), Path("none")))) if "paper's runs" in note]
        assert said == ([f"The paper's runs have {epochs} epochs."] if fewer else [])


def test_quick_needs_nothing_but_the_package():
    for number in PROTOCOLS:
        quick = protocol_of(number, quick=True)
        assert {column.data for column in quick.columns} == {"digits"}
        assert [row.key for row in quick.rows] == [row.key for row in protocol_of(number).rows]
        assert quick.quick


def test_every_row_of_a_regulariser_table_that_sets_its_rates_by_hand_tries_low_ones():
    """A rate of a half underfits within a few epochs."""
    for number in (1, 2, 3):
        for key in ("bernoulli", "gaussian-noise", "sadd", "vadd"):
            row = protocol_of(number).row(key)
            assert {method.rate for method in settings(row, 8)} == {0.1, 0.2, 0.3, 0.5}


def test_compression_has_a_low_error_row_for_both_priors_and_lenet_5_chooses_for_itself():
    weights = protocol_of(4)
    for ours, theirs in (("vbd", "vd"), ("vbd-low-error", "vd-low-error")):
        assert weights.row(ours).choice == weights.row(theirs).choice
        assert weights.row(ours).replicated
        assert weights.row(theirs).replicated
    assert all(column.select_on is None for number in (4, 5) for column in protocol_of(number).columns)
    assert METHODS["vbd-weights"].knobs["kl_weight"][0] == 0.5


@pytest.mark.parametrize(
    ("number", "row", "name", "published"),
    [
        (4, "dns", "c_rate", 4.0),
        (4, "sws", "tau", 0.003),
        (4, "vd", "kl_weight", 1.0),
        (5, "sbp", "kl_weight", 1.0),
        (5, "vibnet", "kl_weight", 1.8),
    ],
)
def test_the_value_of_a_methods_authors_is_among_the_trials_of_every_network(number, row, name, published):
    protocol = protocol_of(number)
    for column in protocol.columns:
        assert published in [getattr(method, name) for method in settings(protocol.row(row), column.trials)]


def test_a_row_that_the_paper_does_not_have_is_tried_and_run_on_one_width():
    for number in (1, 2):
        protocol = protocol_of(number)
        (chooses,) = (column.key for column in protocol.columns if column.select_on is None)
        for row in protocol.rows:
            published = any(published_in(number, row.key, column.key) for column in protocol.columns)
            assert row.only == (() if published else (chooses,)), row.key


def test_a_trial_has_half_the_epochs_but_for_the_two_data_sets_of_colour_images():
    plain = METHODS["plain"]()
    for number, protocol in PROTOCOLS.items():
        for column in protocol.columns:
            if column.select_on is None:
                share = column.budget_of(plain, 0, trial=True).epochs / column.budget.epochs
                assert share == (pytest.approx(1 / 3) if number in (2, 3) else 0.5)
                assert column.finalists_in_full == (share < 0.5)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="`number` must be that of a table of the paper, 1 to 5; got 6"):
        protocol_of(6)
    with pytest.raises(ValueError, match=r"`row` of Table 3 must be one of none, bernoulli, .*; got 'magic'"):
        protocol_of(3).row("magic")
    with pytest.raises(ValueError, match="`column` of Table 3 must be one of 1; got '2'"):
        protocol_of(3).column("2")
