"""The runs of a table: trials first, then what they chose."""

from dataclasses import replace

import pytest

from vbdrop.experiments import Book, protocol_of, record_of
from vbdrop.methods import METHODS
from vbdrop.train import RecordError


@pytest.fixture
def book(tmp_path):
    return Book(protocol_of(4), tmp_path, {"mnist": "ab"})


SIZES = (4000, 3500, 3000, 2500, 2000, 1000)
ERRORS = (1.8, 1.85, 1.9, 1.95, 2.0, 3.0)


def write_asked(book, write_record, row="vbd", errors=ERRORS):
    """Write the trials that a row asks for now, and return the numbers of its seeds, setting by setting."""
    cell = book.cell(row, "lenet-300-100")
    for trial, error, size in zip(cell.trials, errors, SIZES, strict=True):
        for config, known in zip(trial.runs, trial.results, strict=True):
            if known is None:
                write_record(config, error=error, nonzero=size)
    return [len(trial.runs) for trial in cell.trials]


def test_nothing_is_run_on_all_data_before_the_trials_have_chosen(book, write_record):
    assert len(book.missing(["vbd"], ["lenet-300-100"])) == 3  # the setting in the middle, and the plain network twice
    cell = book.cell("vbd", "lenet-300-100")
    assert (cell.chosen, cell.decided) == (None, False)
    assert cell.trials_left == 2 + 5  # three steps of bisection, and two settings with a second seed
    assert all(config.n_valid == 5000 and config.budget.epochs == 50 for config in cell.trial_runs)

    assert write_asked(book, write_record) == [0, 0, 1, 0, 0, 0]
    assert write_asked(book, write_record) == [0, 0, 1, 0, 0, 0]  # the margin is measured from the plain network
    for config in cell.reference.runs:
        write_record(config, error=1.75)
    assert write_asked(book, write_record) == [0, 0, 1, 0, 1, 0]
    assert write_asked(book, write_record) == [0, 0, 1, 0, 1, 1]
    cell = book.cell("vbd", "lenet-300-100")
    assert (cell.chosen, cell.trials_left) == (None, 2)
    assert {config.budget.seed for config in book.missing(["vbd"], ["lenet-300-100"])} == {1}

    noisy = (*ERRORS[:4], 2.6, 3.0)  # good enough with its first seed, and not on average
    assert write_asked(book, write_record, errors=noisy) == [0, 0, 1, 0, 2, 2]
    assert write_asked(book, write_record, errors=noisy) == [0, 0, 1, 2, 2, 2]
    cell = book.cell("vbd", "lenet-300-100")
    assert cell.chosen is cell.trials[3]
    assert cell.runner_up is cell.trials[4]
    assert cell.chosen.mean["error"] == pytest.approx(1.95)
    assert [config.budget.seed for config in cell.finals] == [0, 1, 2]
    assert all(config.n_valid == 0 and config.budget.epochs == 100 for config in cell.finals)
    assert all(config.hyper == cell.trials[3].hyper for config in cell.finals)

    write_record(cell.finals[1])
    assert [config.budget.seed for config in book.missing(["vbd"], ["lenet-300-100"])] == [0, 2]
    assert len(book.cell("vbd", "lenet-300-100").results) == 1


def test_lenet_5_has_a_smaller_margin(book, write_record):
    """Its plain network makes half as many errors as the others: 0.3 points above it would be half as many again."""
    chosen = {}
    for column, plain in (("lenet-300-100", 1.75), ("lenet-5", 0.7)):
        for config in book.cell("vbd", column).reference.runs:
            write_record(config, error=plain)
        while not (cell := book.cell("vbd", column)).decided:
            for index, trial in enumerate(cell.trials):
                for config in trial.runs:
                    write_record(config, error=plain + 0.1 * index, nonzero=SIZES[index])
        chosen[column] = cell.trials.index(cell.chosen)
    assert chosen == {"lenet-300-100": 5, "lenet-5": 2}


def test_two_rows_of_one_method_share_their_trials(book, write_record):
    for config in book.cell("vbd", "lenet-300-100").reference.runs:
        write_record(config, error=1.81)
    rows = ("vbd-low-error", "vbd")
    for _ in range(6):
        low, high = (write_asked(book, write_record, row=row) for row in rows)
    assert low == [2, 2, 1, 0, 0, 0]  # 1.81 is good enough, 1.85 is not
    assert high == [0, 0, 1, 0, 2, 2]
    assert [book.cell(row, "lenet-300-100").chosen.mean["error"] for row in rows] == pytest.approx([1.8, 2.0])


def test_a_row_matches_the_network_that_another_one_has_chosen_in_size(book, write_record, write_trials):
    column, middle = "lenet-300-100", [0, 0, 1, 0, 0, 0]  # where every bisection begins
    assert write_asked(book, write_record, "vd-same-size") == middle
    assert write_asked(book, write_record, "vd-same-size") == middle  # the size is not known yet
    write_trials(
        book, "vbd", column, [{"error": error, "nonzero": size} for error, size in zip(ERRORS, SIZES, strict=True)]
    )
    assert book.cell("vbd", column).chosen.mean["nonzero"] == 2000
    sizes = (3200, 2800, 3000, 2300, 1600, 800)
    write_trials(
        book, "vd-same-size", column, [{"error": 9.0, "nonzero": size} for size in sizes]
    )  # whatever the error
    cell = book.cell("vd-same-size", column)
    assert [len(trial.runs) for trial in cell.trials] == [0, 0, 1, 2, 2, 0]
    assert (cell.chosen.mean["nonzero"], cell.runner_up.mean["nonzero"]) == (2300, 1600)
    assert [config.hyper["kl_weight"] for config in cell.finals] == [cell.chosen.hyper["kl_weight"]] * 3
    assert [config.budget.seed for config in cell.finals] == [0, 1, 2]


def test_errors_are_tried_with_one_seed_and_the_better_half_with_a_second_one(tmp_path, write_record):
    book = Book(protocol_of(1), tmp_path, {"mnist": "ab"})
    cell = book.cell("bernoulli", "340")
    assert cell.trials_left == 8 + 4
    for index, trial in enumerate(cell.trials):
        write_record(trial.runs[0], error=2.0 + 0.1 * index)
    cell = book.cell("bernoulli", "340")
    assert (cell.trials_left, [len(trial.runs) for trial in cell.trials]) == (4, [2] * 4 + [1] * 4)
    for trial, error in zip(cell.trials[:4], (2.6, 1.9, 2.6, 2.6), strict=True):
        write_record(trial.runs[1], error=error)
    cell = book.cell("bernoulli", "340")
    assert (cell.order[0], cell.chosen.mean["error"]) == (1, 2.0)  # the mean decides


def test_a_setting_that_is_clearly_worse_gets_no_second_seed(tmp_path, write_record):
    book = Book(protocol_of(1), tmp_path, {"mnist": "ab"})
    for index, trial in enumerate(book.cell("bernoulli", "340").trials):
        write_record(trial.runs[0], error=2.0 + 0.25 * index)
    cell = book.cell("bernoulli", "340")
    assert [len(trial.runs) for trial in cell.trials] == [2, 2, 2, 1, 1, 1, 1, 1]  # 2.56 is the limit


def test_only_what_did_well_on_other_data_is_tried_where_the_table_says_so(tmp_path, write_record):
    checksums = {"svhn": "ab", "cifar10": "cd"}
    book, other = (Book(protocol_of(number), tmp_path, checksums) for number in (3, 2))
    cell = book.cell("bernoulli", "1")
    assert (cell.decided, cell.trials_left) == (False, 8 + 4 + 2)
    assert [config.data for config in book.missing(["bernoulli"])] == ["cifar10"] * 8  # the trials of Table 2
    errors = (44.0, 42.0, 43.0, 41.0, 40.0, 47.0, 46.0, 45.0)
    for trial, error in zip(other.cell("bernoulli", "1").trials, errors, strict=True):
        write_record(trial.runs[0], error=error)

    cell = book.cell("bernoulli", "1")
    assert [len(trial.runs) for trial in cell.trials] == [0, 1, 1, 1, 1, 0, 0, 0]
    assert cell.trials_left == 4 + 2
    for index, error in ((1, 15.0), (2, 15.2), (3, 16.0), (4, 25.0)):
        write_record(cell.trials[index].runs[0], error=error)
    cell = book.cell("bernoulli", "1")
    assert [len(trial.runs) for trial in cell.trials] == [0, 2, 2, 1, 1, 0, 0, 0]
    finalists = book.missing(["bernoulli"])
    assert [(each.data, each.budget.seed, each.budget.epochs) for each in finalists] == [("svhn", 0, 30)] * 2
    for index, error in ((1, 15.4), (2, 15.1)):
        write_record(cell.trials[index].runs[1], error=error)
    assert book.cell("bernoulli", "1").order == (2, 1)  # by the runs with all epochs alone


def test_short_trials_choose_what_is_run_briefly_and_the_finalists_of_what_is_run_for_longer(tmp_path, write_record):
    """The better half after ten epochs is tried again with thirty, even what seems clearly worse: it has more noise."""
    book = Book(protocol_of(2), tmp_path, {"cifar10": "ab"})
    for index, trial in enumerate(book.cell("bernoulli", "1").trials):
        write_record(trial.runs[0], error=40.0 + index)
    cell = book.cell("bernoulli", "1")
    assert [len(trial.runs) for trial in cell.trials] == [2] * 4 + [1] * 4
    assert {(run.budget.epochs, run.budget.seed, run.n_valid) for trial in cell.trials for run in trial.runs[1:]} == {
        (30, 0, 5000)
    }
    wide = book.cell("bernoulli", "2")
    assert [len(trial.runs) for trial in wide.trials] == [2, 2, 1, 1, 1, 1, 1, 1]
    assert {(run.budget.epochs, run.budget.seed) for trial in wide.trials for run in trial.runs[1:]} == {(10, 1)}
    for trial, error in zip(wide.trials[:2], (40.5, 39.0), strict=True):
        write_record(trial.runs[1], error=error)
    assert book.cell("bernoulli", "2").order == (1, 0)
    provisional = book.cell("bernoulli", "1")
    assert not provisional.decided
    assert provisional.finals[0].hyper["rate"] == wide.trials[1].hyper["rate"]
    for trial, error in zip(provisional.trials[:4], (39.0, 38.0, 36.0, 37.0), strict=True):
        write_record(trial.runs[1], error=error)
    cell = book.cell("bernoulli", "1")
    assert (cell.order, cell.chosen.mean["error"]) == ((2, 3, 1, 0), 36.0)


def test_a_row_of_low_error_is_not_filled_by_a_run_with_default_settings(tmp_path, write_record):
    book = Book(protocol_of(4), tmp_path, {"mnist": "ab"})
    rows = ("vd", "vd-low-error")
    for row in rows:
        write_record(book.cell(row, "lenet-300-100").finals[0], error=2.0)
    assert [len(book.cell(row, "lenet-300-100").results) for row in rows] == [1, 0]


def test_rows_with_one_grid_prefer_the_same_of_equal_settings(tmp_path, write_trials):
    book = Book(protocol_of(1), tmp_path, {"mnist": "ab"})
    for row in ("vd", "vbd"):
        write_trials(book, row, "340", [{"error": 1.2}] * 8)
    first, second = (book.cell(row, "340").chosen.hyper for row in ("vd", "vbd"))
    assert [first[name] for name in ("per", "kl_weight", "rate")] == ["weight", 0.1, 0.1]
    assert all(first[name] == second[name] for name in ("per", "kl_weight", "rate"))


def test_the_best_of_the_others_has_the_lowest_error_even_by_little(tmp_path, write_trials):
    book = Book(protocol_of(1), tmp_path, {"mnist": "ab"})
    for row, error in (("bernoulli", 1.16), ("gaussian-noise", 1.2), ("gaussian", 1.3), ("concrete", 1.14)):
        write_trials(book, row, "340", [{"error": error}] * 8)
    assert [len(book.cell(row, "340").finals) for row in ("bernoulli", "concrete")] == [1, 3]


def test_every_run_of_a_table_has_the_plain_arithmetic(book):
    cell = book.cell("vbd", "lenet-300-100")
    assert {config.arithmetic for config in (*cell.trial_runs, *cell.finals)} == {"plain"}


def test_where_there_is_nothing_to_choose_there_are_no_trials(book):
    cell = book.cell("original", "lenet-300-100")
    assert (cell.trials, cell.decided, len(cell.finals)) == ((), True, 3)
    assert [config.id for config in book.missing(["original"], ["lenet-300-100"])] == [c.id for c in cell.finals]


def test_vibnet_is_vbd_on_a_network_of_linear_layers(tmp_path):
    book = Book(protocol_of(5), tmp_path, {"mnist": "ab"})
    ours, theirs = (book.cell(key, "lenet-500-300") for key in ("vbd", "vibnet"))
    assert ours.finals == theirs.finals
    assert theirs.row.key == "vibnet"
    ours, theirs = (book.cell(key, "lenet-5") for key in ("vbd", "vibnet"))
    assert ours.finals[0].hyper["weighting"] != theirs.finals[0].hyper["weighting"]


def test_trials_on_svhn_hold_out_neighbours_and_final_runs_nothing(tmp_path, write_record):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab", "cifar10": "cd"})
    for trial in book.cell("vbd", "1").screening:
        write_record(trial.runs[0])
    cell = book.cell("vbd", "1")
    tried = [config for trial in cell.trials for config in trial.runs]
    assert {(config.data, config.split, config.n_valid) for config in tried} == {("svhn", "block", 5_000)}
    assert {(config.split, config.n_valid) for config in cell.finals} == {("image", 0)}


def test_as_long_as_nothing_is_chosen_a_recorded_run_with_the_defaults_counts_and_none_is_made(book, write_record):
    finals = book.cell("vbd", "lenet-300-100").finals
    assert {config.hyper["kl_weight"] for config in finals} == {METHODS["vbd-weights"]().kl_weight}
    assert not any(config.id in {each.id for each in finals} for config in book.missing())
    assert [config.budget.seed for config in book.without_trials(["vbd"], ["lenet-300-100"])] == [0, 1, 2]
    write_record(finals[0])
    assert len(book.cell("vbd", "lenet-300-100").results) == 1
    assert [config.id for config in book.without_trials(["vbd"], ["lenet-300-100"])] == [each.id for each in finals[1:]]


def test_a_column_may_use_what_another_one_chose(book, write_record):
    book = Book(protocol_of(1), book.records, {"mnist": "ab"})
    cell = book.cell("bernoulli", "100")
    assert {config.model_args["units"] for config in cell.trial_runs} == {340}
    assert [config.model_args["units"] for config in cell.finals] == [100]


def test_what_has_units_that_stay_dead_loses_them_while_it_trains(book):
    shrinking = {
        row.key for row in book.protocol.rows if book.cell(row.key, "lenet-5").finals[0].budget.shrink_every == 2
    }
    assert shrinking == {"vd", "vd-same-size", "vd-low-error", "vbd", "vbd-low-error"}
    cell = book.cell("vbd", "lenet-300-100")
    assert {config.budget.shrink_every for trial in cell.trials for config in trial.runs} == {2}
    assert {config.budget.shrink_every for config in (*cell.finals, *cell.reference.runs)} == {2, None}


def test_all_runs_are_expected_before_any_is_made(book):
    rows, columns = len(book.protocol.rows), 2
    expected = book.expected()
    assert len(book.missing()) < len(expected)
    finals = [config for config in expected if not config.n_valid]
    replicated = sum(row.replicated for row in book.protocol.rows)
    assert len(finals) == columns * (3 * replicated + (rows - replicated))
    assert len({config.id for config in book.missing()}) == len(book.missing())
    assert len(book.cells()) == rows * columns


def test_a_trial_that_diverged_counts_and_if_all_did_nothing_is_run(book, write_record):
    while runs := book.missing(["rigl"], ["lenet-300-100"]):
        for config in runs:
            write_record(config, outcome="finished" if config.method == "plain" else "diverged")
    cell = book.cell("rigl", "lenet-300-100")
    assert (cell.decided, cell.chosen, cell.finals) == (True, None, ())
    assert book.missing(["rigl"], ["lenet-300-100"]) == []


def test_without_the_data_the_checksum_of_the_records_is_used(book, write_record, tmp_path):
    config = book.cell("original", "lenet-300-100").finals[0]
    write_record(config)
    assert len(Book(protocol_of(4), tmp_path).cell("original", "lenet-300-100").results) == 1
    write_record(replace(config, checksum="cd", n_train=10))
    write_record(replace(config, checksum="cd", n_train=11))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text("{")
    assert not Book(protocol_of(4), tmp_path).cell("original", "lenet-300-100").results


def test_a_result_of_another_run_is_an_error(book, write_record, tmp_path):
    config = book.cell("original", "lenet-300-100").finals[0]
    write_record(config, run="0123")
    with pytest.raises(RecordError, match="holds the result of another run, 0123"):
        book.cell("original", "lenet-300-100")
    (record_of(config, tmp_path).folder / "result.json").write_text("{")
    with pytest.raises(RecordError, match="is damaged"):
        book.missing()
