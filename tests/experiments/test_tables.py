"""Tables from records that were written by hand."""

import json
import math
from dataclasses import replace

import pytest

from vbdrop.experiments import Book, Stat, protocol_of, table
from vbdrop.experiments.tables import stat
from vbdrop.methods import METHODS


@pytest.fixture
def book(tmp_path, write_record, write_trials):
    """Table 4 with VBD on LeNet-300-100 complete, the original half done, and nothing else."""
    book = Book(protocol_of(4), tmp_path, {"mnist": "ab"})
    sizes = (6000, 5000, 4000, 3000, 2000, 1000)
    write_trials(book, "vbd", "lenet-300-100", [{"error": 2.0, "nonzero": size} for size in sizes])
    for config, error, ratio in zip(
        book.cell("vbd", "lenet-300-100").finals, (1.6, 1.7, 2.1), (80.0, 90.0, 85.0), strict=True
    ):
        nonzero = {80.0: 100, 90.0: 200, 85.0: 300}[ratio]
        units = [100, 30 if ratio == 80 else 40, 10]
        write_record(config, error=error, ratio=ratio, nonzero=nonzero, units=units)
    write_record(book.cell("original", "lenet-300-100").finals[0], error=1.75)
    return book


def test_mean_and_standard_deviation_over_the_seeds(book):
    cell = table(book).cell("vbd", "lenet-300-100")
    assert cell.ours.error.mean == pytest.approx((1.6 + 1.7 + 2.1) / 3)
    assert cell.ours.error.sd == pytest.approx(math.sqrt(((0.2) ** 2 + (0.1) ** 2 + 0.3**2) / 2))
    assert cell.ours.error.n == 3
    assert cell.ours.ratio == Stat(85.0, 5.0, 3)
    assert cell.ours.sparsity == pytest.approx((80.0, 50.0))
    assert cell.ours.units == pytest.approx((100, 110 / 3, 10))
    assert cell.paper.error == 1.76
    assert cell.choice == {"kl_weight": METHODS["vbd-weights"].knobs["kl_weight"][5]}
    assert cell.runner_up == {"kl_weight": METHODS["vbd-weights"].knobs["kl_weight"][4]}
    assert (cell.validation["error"], cell.validation["nonzero"]) == (2.0, 1000)
    assert cell.runner_up_validation["nonzero"] == 2000
    assert len(cell.runs) == 3
    assert cell.command is None


def test_a_cell_that_is_not_complete_says_how_to_run_it(book):
    whole = table(book)
    half = whole.cell("original", "lenet-300-100")
    assert (half.ours.error, half.command) == (
        Stat(1.75, None, 1), "vbdrop table 4 --run --row original --column lenet-300-100",
    )  # fmt: skip
    missing = whole.cell("sws", "lenet-5")
    assert missing.ours is None
    assert missing.paper.error == 0.97
    assert missing.command == "vbdrop table 4 --run --row sws --column lenet-5"
    assert whole.made_on == ("Abacus 9, torch 2.13.0, 1 thread",)


def test_some_rows_and_columns_only(book):
    part = table(book, rows=["vbd", "vd"], columns=["lenet-300-100"])
    assert [(cell.row.key, cell.column.key) for cell in part.cells] == [
        ("vbd", "lenet-300-100"), ("vd", "lenet-300-100"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="`row` of Table 4 must be one of"):
        table(book, rows=["magic"])


def test_where_every_trial_diverged_there_is_nothing_to_run(book, write_trials):
    write_trials(book, "rigl", "lenet-300-100", [{"outcome": "diverged"}] * 6)
    cell = table(book).cell("rigl", "lenet-300-100")
    assert (cell.ours, cell.diverged, cell.command) == (None, 1, None)


def test_a_run_that_diverged_is_counted_and_not_averaged(book, write_record):
    write_record(book.cell("vbd", "lenet-300-100").finals[2], outcome="diverged")
    cell = table(book).cell("vbd", "lenet-300-100")
    assert (cell.ours.error.n, cell.diverged, cell.command) == (2, 1, None)


def test_the_table_is_json(book):
    found = json.loads(json.dumps(table(book).as_dict()))
    assert found["table"] == 4
    assert len(found["cells"]) == 22
    assert found["cells"][0]["ours"]["error"] == {"mean": 1.75, "sd": None, "n": 1}
    assert found["columns"][0]["budget"]["epochs"] == 100


def test_a_network_with_nothing_left_has_an_infinite_ratio_and_the_table_is_still_json(book, write_record):
    write_record(book.cell("vbd", "lenet-300-100").finals[2], ratio=None)
    whole = table(book)
    assert whole.cell("vbd", "lenet-300-100").ours.ratio == Stat(math.inf, None, 3)
    text = json.dumps(whole.as_dict(), allow_nan=False)
    ours = next(cell["ours"] for cell in json.loads(text)["cells"] if cell["row"] == "vbd")
    assert ours["ratio"] == {"mean": None, "sd": None, "n": 3}


def test_stat_needs_a_number():
    with pytest.raises(ValueError, match="at least one number"):
        stat([])


def test_a_method_with_nothing_to_choose_is_never_said_to_have_default_settings(book):
    whole = table(book)
    original, tuned = (whole.cell(row, "lenet-300-100") for row in ("original", "vbd"))
    assert original.ours is not None
    assert not original.is_by_default
    assert not tuned.is_by_default
    assert replace(tuned, choice=None).is_by_default
    assert not replace(tuned, choice=None, ours=None).is_by_default


def test_a_chosen_value_at_an_end_of_what_was_tried_is_named(book, write_trials):
    assert table(book).cell("vbd", "lenet-300-100").edges == ("kl_weight",)
    figures = [{"error": error, "nonzero": 1000} for error in (2.0, 2.0, 2.0, 2.0, 9.0, 9.0)]
    write_trials(book, "vd", "lenet-300-100", figures)
    cell = table(book).cell("vd", "lenet-300-100")
    value = METHODS["sparse-vd"].knobs["kl_weight"][3]
    assert (cell.choice["kl_weight"], cell.edges) == (value, ())  # the strongest that was tried, and not of the grid
    assert cell.trials == 3


def test_of_two_values_either_is_at_an_end(tmp_path, write_trials):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab", "cifar10": "cd"})
    write_trials(book, "vbd", "1", [{"error": 9.0 - k} for k in range(8)])
    cell = table(book).cell("vbd", "1")
    assert (cell.choice["kl_weight"], cell.edges) == (1.0, ("kl_weight", "rate"))


def test_the_seeds_of_a_choice_and_the_epochs_of_older_runs_are_known(book, write_record):
    assert table(book).cell("vbd", "lenet-300-100").validation_n == 2
    assert table(book).cell("vd", "lenet-300-100").validation_n == 0
    own = book.cell("vd", "lenet-300-100").finals[0]
    for epochs, said in ((100, None), (20, 20)):
        folder = book.records / str(epochs)
        write_record(replace(own, arithmetic="kernels", budget=replace(own.budget, epochs=epochs)), folder)
        cell = table(Book(book.protocol, folder, {"mnist": "ab"})).cell("vd", "lenet-300-100")
        assert (cell.older, cell.other_epochs) == (True, said)
