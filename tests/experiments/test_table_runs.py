"""The runs of a table: trials first, then what they chose."""

from dataclasses import replace

import pytest

from vbdrop.experiments import Book, protocol_of, record_of
from vbdrop.methods import METHODS
from vbdrop.train import RecordError


@pytest.fixture
def book(tmp_path):
    return Book(protocol_of(4), tmp_path, {"mnist": "ab"})


def test_nothing_is_run_on_all_data_before_the_trials_have_chosen(book, write_record):
    assert len(book.missing(["vbd"], ["lenet-300-100"])) == 5  # four trials, and the plain network's
    cell = book.cell("vbd", "lenet-300-100")
    assert (cell.chosen, cell.decided) == (None, False)
    assert all(config.n_valid == 5000 and config.budget.seed == 0 for config in (*cell.trials, *cell.reference))

    for config, error, size in zip(cell.trials, (1.8, 1.9, 2.0, 3.0), (4000, 3000, 2000, 1000), strict=True):
        write_record(config, error=error, nonzero=size)
    cell = book.cell("vbd", "lenet-300-100")
    assert (cell.chosen, cell.decided) == (None, False)  # the margin is measured from the plain network
    write_record(cell.reference[0], error=1.75)

    cell = book.cell("vbd", "lenet-300-100")
    assert cell.chosen == 2
    assert cell.validation["error"] == 2.0
    assert [config.budget.seed for config in cell.finals] == [0, 1, 2]
    assert all(config.n_valid == 0 and config.hyper == cell.trials[2].hyper for config in cell.finals)
    assert book.cell("vbd-low-error", "lenet-300-100").chosen == 0  # the same trials, and no margin

    write_record(cell.finals[1])
    assert [config.budget.seed for config in book.missing(["vbd"], ["lenet-300-100"])] == [0, 2]
    assert len(book.cell("vbd", "lenet-300-100").results) == 1


def test_as_long_as_nothing_is_chosen_a_recorded_run_with_the_defaults_counts_and_none_is_made(book, write_record):
    finals = book.cell("vbd", "lenet-300-100").finals
    assert {config.hyper["kl_weight"] for config in finals} == {METHODS["vbd-weights"]().kl_weight}
    assert not any(config.id in {each.id for each in finals} for config in book.missing())
    assert [config.budget.seed for config in book.without_trials(["vbd"], ["lenet-300-100"])] == [0, 1, 2]
    write_record(finals[0])
    assert len(book.cell("vbd", "lenet-300-100").results) == 1
    assert [config.id for config in book.without_trials(["vbd"], ["lenet-300-100"])] == [each.id for each in finals[1:]]


def test_a_column_may_use_what_another_one_chose(book, write_record):
    cell = book.cell("original", "lenet-5")
    assert {config.model for config in cell.trials} == {"lenet-300-100"}
    write_record(cell.trials[0])
    assert [config.model for config in book.cell("original", "lenet-5").finals] == ["lenet-5"]


def test_what_has_units_that_stay_dead_loses_them_while_it_trains(book):
    shrinking = {
        row.key for row in book.protocol.rows if book.cell(row.key, "lenet-5").finals[0].budget.shrink_every == 2
    }
    assert shrinking == {"vd", "vbd", "vbd-low-error"}
    cell = book.cell("vbd", "lenet-300-100")
    assert {config.budget.shrink_every for config in (*cell.trials, *cell.finals)} == {2}
    assert {config.budget.shrink_every for config in cell.reference} == {None}


def test_all_runs_are_expected_before_any_is_made(book):
    rows, columns = len(book.protocol.rows), 2
    expected = book.expected()
    assert len(book.missing()) < len(expected)
    finals = [config for config in expected if not config.n_valid]
    assert len(finals) == rows * (3 + 1)
    assert len({config.id for config in book.missing()}) == len(book.missing())
    assert len(book.cells()) == rows * columns


def test_a_trial_that_diverged_counts_and_if_all_did_nothing_is_run(book, write_record):
    cell = book.cell("rigl", "lenet-300-100")
    write_record(cell.reference[0])
    for config in cell.trials:
        write_record(config, outcome="diverged")
    cell = book.cell("rigl", "lenet-300-100")
    assert (cell.decided, cell.chosen, cell.finals) == (True, None, ())
    assert book.missing(["rigl"], ["lenet-300-100"]) == []


def test_without_the_data_the_checksum_of_the_records_is_used(book, write_record, tmp_path):
    config = book.cell("original", "lenet-300-100").trials[0]
    write_record(config)
    assert Book(protocol_of(4), tmp_path).cell("original", "lenet-300-100").decided
    write_record(replace(config, checksum="cd", n_train=10))
    write_record(replace(config, checksum="cd", n_train=11))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text("{")
    assert not Book(protocol_of(4), tmp_path).cell("original", "lenet-300-100").decided


def test_a_result_of_another_run_is_an_error(book, write_record, tmp_path):
    config = book.cell("original", "lenet-300-100").trials[0]
    write_record(config, run="0123")
    with pytest.raises(RecordError, match="holds the result of another run, 0123"):
        book.cell("original", "lenet-300-100")
    (record_of(config, tmp_path).folder / "result.json").write_text("{")
    with pytest.raises(RecordError, match="is damaged"):
        book.missing()
