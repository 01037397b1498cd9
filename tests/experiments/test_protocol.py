"""The protocol of a table: seeds, and the budgets of runs and trials."""

import pytest

from vbdrop.experiments import protocol_of
from vbdrop.methods import METHODS


def test_another_number_of_seeds_is_the_same_table_otherwise():
    more = protocol_of(4).with_seeds(5)
    assert [column.seeds for column in more.columns] == [5, 5]
    assert {more.seeds_of(row, column) for row in more.rows for column in more.columns} == {5}
    assert more.with_seeds(3).columns[0] == protocol_of(4).columns[0]
    with pytest.raises(ValueError, match="`seeds` must be a number of runs, an int >= 1; got 0"):
        more.with_seeds(0)


def test_only_replicated_rows_have_more_than_one_seed():
    protocol = protocol_of(1)
    column = protocol.column("340")
    seeds = {row.key: protocol.seeds_of(row, column) for row in protocol.rows}
    assert {key for key, count in seeds.items() if count == 3} == {"none", "vd", "vbd"}
    assert {protocol.seeds_of(row, protocol.column("100")) for row in protocol.rows} == {1}


def test_a_trial_has_fewer_epochs_and_is_the_same_otherwise():
    column, method = protocol_of(4).column("lenet-300-100"), METHODS["vbd-weights"]()
    run, trial = column.budget_of(method, 3), column.budget_of(method, 3, trial=True)
    assert (run.epochs, trial.epochs) == (100, 50)
    assert (run.seed, run.lr, run.shrink_every) == (trial.seed, trial.lr, trial.shrink_every)
