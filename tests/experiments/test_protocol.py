"""The protocols: complete, and the same budget for every row."""

from pathlib import Path

import pytest

from vbdrop.experiments import PROTOCOLS, Book, protocol_of, resolve, settings, table
from vbdrop.experiments.table_text import notes
from vbdrop.methods import METHODS


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("number", PROTOCOLS)
def test_every_run_of_a_table_has_settings(number, quick):
    protocol = protocol_of(number, quick=quick)
    for row in protocol.rows:
        for column in protocol.columns:
            for method in settings(row, protocol.trials):
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
        (ours,) = {column.budget.epochs for column in protocol_of(number).columns}
        said = [note for note in notes(table(Book(protocol_of(number), Path("none")))) if "paper's runs" in note]
        assert said == ([] if ours == epochs else [f"The paper's runs have {epochs} epochs."])


def test_quick_needs_nothing_but_the_package():
    for number in PROTOCOLS:
        quick = protocol_of(number, quick=True)
        assert {column.data for column in quick.columns} == {"digits"}
        assert [row.key for row in quick.rows] == [row.key for row in protocol_of(number).rows]
        assert quick.quick


def test_another_number_of_seeds_is_the_same_table_otherwise():
    more = protocol_of(4).with_seeds(5)
    assert [column.seeds for column in more.columns] == [5, 5]
    assert more.with_seeds(3).columns[0] == protocol_of(4).columns[0]
    with pytest.raises(ValueError, match="`seeds` must be a number of runs, an int >= 1; got 0"):
        more.with_seeds(0)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="`number` must be that of a table of the paper, 1 to 5; got 6"):
        protocol_of(6)
    with pytest.raises(ValueError, match=r"`row` of Table 3 must be one of none, bernoulli, .*; got 'magic'"):
        protocol_of(3).row("magic")
    with pytest.raises(ValueError, match="`column` of Table 3 must be one of 1; got '2'"):
        protocol_of(3).column("2")
