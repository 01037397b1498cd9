"""The ablations: one change each, judged on validation data."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vbdrop.experiments import ABLATIONS, Book, ablations, layout, markdown, protocol_of, settings, table
from vbdrop.experiments.ablations import ONE_STAGE, RIVALS, THREE_STAGES
from vbdrop.experiments.table_text import chosen, missing, notes
from vbdrop.methods import METHODS

COLUMN = "lenet-300-100"


@pytest.fixture
def book(tmp_path, write_record):
    """Base and one change with two seeds each, another with one."""
    book = Book(ablations().with_seeds(2), tmp_path, {"mnist": "ab"})
    for key, errors, ratio in (
        ("three-stages", (1.8, 2.0), 80.0),
        ("late", (1.7, 1.8), 100.0),
        ("no-refining", (2.5,), None),
    ):
        for config, error in zip(book.cell(key, COLUMN).finals, errors, strict=False):
            record = write_record(config, error=error, ratio=ratio)
            sweep = [
                {"threshold": left, "own": not worse, "weights": 1000, "nonzero": left, "error": worse + error}
                for left, worse in ((12.5, 0), (5, 1.0))
            ]
            if ratio is not None:
                (record.folder / "details.json").write_text(json.dumps({"sweep": sweep}))
    return book


@pytest.mark.parametrize("key", ABLATIONS)
def test_a_row_is_one_setting_and_changes_its_base(key):
    row = ABLATIONS[key]
    (method,) = settings(ablations().row(key), 8)
    assert {name: getattr(method, name) for name in row.fixed} == row.fixed
    if row.base is None:
        assert row.fixed == (THREE_STAGES if row.only else ONE_STAGE)
        return
    base = ABLATIONS[row.base]
    assert (base.method, base.only) == (row.method, row.only)
    assert base.fixed in (ONE_STAGE, THREE_STAGES)
    assert row.fixed != base.fixed
    assert row.question or row.key.removeprefix("vd-") in RIVALS


@pytest.mark.parametrize(("change", "row"), [("three-stages", "vbd"), ("vd-three-stages", "vd")])
def test_the_change_that_became_the_default_is_a_setting_that_table_4_tries(tmp_path, change, row):
    cell = Book(ablations(), tmp_path, {"mnist": "ab"}).cell(change, COLUMN)
    tried = Book(protocol_of(4), tmp_path, {"mnist": "ab"}).cell(row, COLUMN).trials
    assert cell.finals[0].hyper in [trial.hyper for trial in tried]
    assert cell.finals[0].build_method() == METHODS[cell.row.method]()
    assert [config.n_valid for config in cell.finals] == [5000, 5000, 5000]
    assert [config.budget.seed for config in cell.finals] == [0, 1, 2]


def test_a_baseline_gets_what_its_rival_gets():
    for key in RIVALS:
        row, rival = ABLATIONS[key], ABLATIONS[f"vd-{key}"]
        assert (rival.fixed, rival.only, rival.method) == (row.fixed, row.only, "sparse-vd")
        assert (row.base is None) == (rival.base is None)


def test_a_change_of_convolutions_is_tried_on_a_convolutional_network_alone(tmp_path):
    cells = Book(ablations(), tmp_path, {"mnist": "ab"}).cells()
    on = {cell.row.key: cell.column.key for cell in cells}
    assert len(cells) == len(on) == len(ABLATIONS)
    assert {key for key, column in on.items() if column == "lenet-5"} == {
        "conv", "conv-masked", "vd-conv", "vd-conv-masked",
    }  # fmt: skip
    assert {config.model for cell in cells for config in cell.finals} == {"lenet-300-100", "lenet-5"}


@pytest.mark.parametrize(
    ("late", "said"),
    [((1.7, 1.8, 1.9), "-0.10 (-0.35 to +0.15)"), ((1.7, 1.9, 1.8), "-0.10 (-0.12 to -0.08)")],  # not a width of 0
)
def test_a_difference_over_three_seeds_has_its_interval(late, said, tmp_path, write_record):
    book = Book(ablations(), tmp_path, {"mnist": "ab"})
    for key, errors in (("three-stages", (1.8, 2.0, 1.9)), ("late", late)):
        for config, error in zip(book.cell(key, COLUMN).finals, errors, strict=True):
            write_record(config, error=error)
    sheet, _ = layout(table(book))
    assert {row[0]: row[3] for row in sheet.rows}["Three stages: late KL"] == said


def test_the_sheet_says_how_far_from_the_base_a_change_is(book):
    sheet, conv = layout(table(book))
    assert [row[0] for row in conv.rows][:2] == ["VBD, three stages, LeNet-5 (base)", "Dead variances masked, LeNet-5"]
    rows = {row[0]: row[1:] for row in sheet.rows}
    stages = "kl_weight = 2, pretrain = 0.2, refine = 0.3"
    assert rows["VBD, three stages (base)"] == ("VBD, one stage", "1.90 ± 0.14", "–", "80 ± 0x", "–", "–", "2", stages)
    assert rows["Three stages: late KL"] == (
        "VBD, three stages",
        "1.75 ± 0.07",
        "-0.15",
        "100 ± 0x",
        "+25 %",
        "-0.15 at 80x",
        "2",
        "hold = 0.05, ramp = 0.3",
    )
    unrefined = rows["Three stages: no refining"]
    assert unrefined == ("VBD, three stages", "2.50", "+0.60", "∞", "–", "–", "1", "refine = 0")
    assert rows["Sparse VD, one stage (base)"] == ("–", "not run", "–", "–", "–", "–", "–", "–")


def test_a_row_without_its_base_has_no_difference(book):
    (sheet,) = layout(table(book, rows=["late"]))
    assert sheet.rows[0][3] == "–"


def test_every_base_is_said_to_be_one_and_named_in_its_rows():
    bases = {row.base for row in ABLATIONS.values()} - {None}
    assert {row.key for row in ABLATIONS.values() if row.title.endswith(" (base)")} == bases
    three = {key for key in ABLATIONS if ABLATIONS[key].base == "three-stages"}
    for sheet in layout(table(Book(ablations(), Path("none")))):
        named = {row[0]: row[1] for row in sheet.rows}
        assert all(named[ABLATIONS[key].title] == "VBD, three stages" for key in three if ABLATIONS[key].title in named)
    assert ABLATIONS["vd-three-stages"].title == "Sparse VD, three stages (base)"
    assert ABLATIONS["vd-low"].title == "Sparse VD, three stages: half the pressure"


def test_older_runs_have_no_difference_from_new_ones(tmp_path, write_record):
    book = Book(ablations(), tmp_path, {"mnist": "ab"})
    write_record(replace(book.cell("three-stages", COLUMN).finals[0], arithmetic="kernels"), error=1.8)
    write_record(book.cell("late", COLUMN).finals[0], error=1.7)
    sheet, _ = layout(table(Book(book.protocol, tmp_path, {"mnist": "ab"})))
    rows = {row[0]: row[2:] for row in sheet.rows}
    assert rows["VBD, three stages (base)"][0] == "1.80†"
    assert rows["Three stages: late KL"][:2] == ("1.70", "–")


def test_nothing_is_chosen_and_every_run_is_made_once(book):
    whole = table(book)
    assert chosen(whole) is None
    assert "validation split" in notes(whole)[0]
    assert not any("*" in note for note in notes(whole))
    expected = book.expected(rows=["three-stages", "late", "no-refining", "vd-one-stage"])
    assert [(run.method, run.budget.seed) for run in expected] == [
        ("vbd-weights", 1), ("sparse-vd", 0), ("sparse-vd", 1),
    ]  # fmt: skip
    assert "vbdrop ablation --run --row vd-one-stage  # 2 runs" in missing(whole)
    assert missing(table(Book(ablations(), book.records / "none"))) == ["vbdrop ablation --run"]


def test_markdown_has_the_questions(book):
    text = markdown(table(book))
    assert text.startswith("# Ablations: ")
    assert f"- *Three stages: late KL*: {ABLATIONS['late'].question}" in text
    assert table(book).as_dict()["cells"][0]["fixed"] == ONE_STAGE
