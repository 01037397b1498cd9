"""The paper's method against another one, seed by seed, from records that were written by hand."""

import json
import math

import pytest

from vbdrop.experiments import Book, protocol_of, table
from vbdrop.experiments.table_text import markdown, sheets
from vbdrop.experiments.versus import contests, pairs, versus


def compared(whole):
    return contests(whole, pairs(whole))


OTHER = {3: "svhn", 4: "mnist", 5: "mnist"}


@pytest.fixture
def make(tmp_path, write_record, write_trials):
    """Writes the final runs of VBD and VD in a column, with chosen settings: pairs of error and ratio."""

    def write(number, column, vbd, vd, curve=None):
        book = Book(protocol_of(number), tmp_path, {OTHER[number]: "ab"})
        for row, runs in (("vbd", vbd), ("vd", vd)):
            write_trials(book, row, column, [{"error": 2.0 + k} for k in range(len(book.cell(row, column).trials))])
            for config, (error, ratio) in zip(book.cell(row, column).finals, runs, strict=False):
                record = write_record(config, tmp_path, error=error, ratio=ratio, compact_ratio=ratio)
                if curve is not None:
                    sweep = [
                        {"threshold": -times, "own": times == 1, "weights": 1000.0, "nonzero": 1000 / (ratio * times),
                         "compact_weights": 1000 / ratio / times, "error": error + worse}
                        for times, worse in curve
                    ]  # fmt: skip
                    (record.folder / "details.json").write_text(json.dumps({"sweep": sweep}))
        return table(book)

    return write


def test_errors_are_compared_seed_by_seed(make):
    (found,) = compared(make(3, "1", [(13.0, 1), (13.2, 1), (13.1, 1)], [(14.0, 1), (14.4, 1), (14.3, 1)]))
    assert (found.where, found.basis, found.size) == ("Table 3, scale 1", "error", None)
    assert (found.error.mean, found.error.n) == (pytest.approx(-3.4 / 3), 3)
    assert found.decisive is found.error


def test_three_equal_differences_of_counts_are_not_certain(make):
    found, more = (
        compared(make(3, "1", [(13.0, 1), (13.2, 1), (13.1, 1)], [(13.0 + gap, 1), (13.2 + gap, 1), (13.1 + gap, 1)]))[
            0
        ]
        for gap in (0.01, 0.5)
    )
    assert 0.05 < found.error.p < 1
    assert found.error.low < 0 < found.error.high
    assert 0 < more.error.p < 0.05


def test_one_run_each_shows_a_direction_and_decides_nothing(make):
    whole = make(3, "1", [(13.0, 1)], [(14.0, 1)])
    (found,) = compared(whole)
    assert (found.error.mean, found.error.p) == (-1.0, None)
    assert "-1.00 (n = 1, too few)" in markdown(whole)


def test_networks_close_in_size_are_cut_to_one_size(make):
    curve = ((1, 0.0), (2, 1.0))
    vbd, vd = [(1.7, 90.0), (1.8, 90.0), (1.6, 90.0)], [(1.9, 100.0), (2.0, 100.0), (1.8, 100.0)]
    (found,) = compared(make(4, "lenet-300-100", vbd, vd, curve))
    worse = math.log(100 / 90) / math.log(2)  # VBD cut from 90 to 100 times
    assert (found.basis, found.decisive.mean) == ("one size", pytest.approx(worse - 0.2))
    assert found.size.mean == pytest.approx(math.log(0.9))


def test_smaller_and_more_often_right_is_better(make):
    vbd, vd = [(1.7, 90.0), (1.8, 90.0), (1.6, 90.0)], [(1.9, 50.0), (2.0, 50.0), (1.8, 50.0)]
    whole = make(4, "lenet-300-100", vbd, vd)
    (found,) = compared(whole)
    assert (found.basis, found.decisive) == ("dominance", found.error)
    assert versus(whole).rows[0][4:] == ("-44 %, -44 % to -44 %", "error: VBD (high sparsity) is smaller, too")


@pytest.mark.parametrize("gap", [-0.003, 0.003])
def test_at_an_equal_error_the_size_decides_whatever_the_sign_of_the_noise(make, gap):
    vbd, vd = [(1.6 + gap, 39), (1.7 + gap, 40), (1.65 + gap, 38)], [(1.6, 14.0), (1.7, 14.1), (1.65, 13.9)]
    whole = make(5, "lenet-500-300", vbd, vd)
    (found,) = compared(whole)
    assert (found.basis, found.decisive.mean, found.decisive.p < 0.05) == ("equal error", -found.size.mean, True)
    assert found.decisive.low < found.decisive.mean < found.decisive.high < 0
    assert versus(whole).rows[0][5] == "size, at errors equal to within 0.2 points"


def test_smaller_and_less_often_right_is_a_trade_off(make):
    vbd, vd = [(2.0, 90.0), (2.1, 90.0), (2.2, 90.0)], [(1.9, 50.0), (2.0, 50.0), (1.8, 50.0)]
    whole = make(4, "lenet-300-100", vbd, vd)
    (found,) = compared(whole)
    assert (found.basis, found.decisive) == ("trade-off", None)
    assert versus(whole).rows[0][5] == "a trade-off: nothing"


@pytest.fixture
def unlike(tmp_path, write_record, write_trials):
    """Writes all trials of both methods, so that the networks that they choose differ in size, and the final runs."""

    def write(sizes, **finals):
        book = Book(protocol_of(4), tmp_path, {"mnist": "ab"})
        write_trials(book, "vbd", "lenet-300-100", [{"error": 2.2, "nonzero": 900}] * 6)
        for row in ("vd", "vd-same-size"):
            write_trials(book, row, "lenet-300-100", [{"error": 2.2, "nonzero": size} for size in sizes])
        for row, runs in finals.items():
            cell = book.cell(row.replace("_", "-"), "lenet-300-100")
            for config, (error, ratio) in zip(cell.finals, runs, strict=False):
                record = write_record(config, tmp_path, error=error, ratio=ratio)
                sweep = [
                    {"threshold": -k, "own": k == 0, "weights": 1000, "nonzero": 1000 / ratio / (1 + k), "error": error}
                    for k in range(2)
                ]
                (record.folder / "details.json").write_text(json.dumps({"sweep": sweep}))
        return table(book)

    return write


VBD = [(1.7, 95.0), (1.8, 95.0), (1.9, 95.0)]
SMALLER = [(1.95, 150.0), (2.05, 150.0), (2.1, 150.0)]
UNLIKE = (1500, 1300, 1100, 1000, 800, 500)


def test_a_rival_of_another_size_gives_way_to_its_row_that_matches_ours(unlike):
    whole = unlike(UNLIKE, vbd=VBD, vd=SMALLER)
    assert compared(whole) == []  # the test data play no part: the row that counts has not been run
    assert [row[5] for row in versus(whole).rows] == ["nothing: compared at the same size instead"]
    whole = unlike(UNLIKE, vbd=VBD, vd=SMALLER, vd_same_size=[(1.8, 95.0), (1.9, 95.0), (2.1, 95.0)])
    (found,) = compared(whole)
    assert (found.basis, found.rival) == ("one size", "Sparse VD (same size)")
    assert found.decisive.mean == pytest.approx(-0.4 / 3)
    assert [row[1] for row in versus(whole).rows] == ["Sparse VD (same size)", "Sparse VD"]


def test_a_rival_of_about_the_same_size_on_the_split_stays_whatever_it_becomes_on_the_test_data(unlike):
    (found,) = compared(unlike((950,) * 6, vbd=VBD, vd=SMALLER))
    assert (found.rival, found.basis) == ("Sparse VD", "trade-off")


def test_a_rival_that_matches_ours_in_size_wins_by_its_error_or_not_at_all(unlike):
    """A smaller network at an equal error says nothing if its size was not chosen for its error."""
    (found,) = compared(unlike(UNLIKE, vbd=VBD, vd=SMALLER, vd_same_size=[(error, 150.0) for error, _ in VBD]))
    assert (found.rival, found.basis, found.decisive) == ("Sparse VD (same size)", "trade-off", None)


def test_errors_are_equal_within_a_share_of_the_margin(make):
    vbd, vd = [(0.8, 39), (0.9, 40), (0.85, 38)], [(0.7, 14.0), (0.8, 14.1), (0.75, 13.9)]
    found = [compared(make(5, column, vbd, vd))[-1] for column in ("lenet-500-300", "lenet-5")]
    assert [(each.basis, each.equal) for each in found] == [
        ("equal error", pytest.approx(0.2)),
        ("trade-off", pytest.approx(0.08)),
    ]


def test_neurons_are_compared_by_the_weights_between_them(make, write_record):
    whole = make(5, "lenet-500-300", [(1.5, 30.0)] * 3, [(1.6, 10.0)] * 3)
    assert compared(whole)[0].size.mean == pytest.approx(math.log(3))
    assert "Seed by seed" in [sheet.title for sheet in sheets(whole)]


def test_default_settings_are_not_compared(tmp_path, write_record):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab"})
    for row in ("vbd", "vd"):
        for config in book.cell(row, "1").finals:
            write_record(config)
    whole = table(book)
    assert whole.cell("vbd", "1").ours.error.n == 3
    assert (compared(whole), versus(whole)) == ([], None)
