"""Sentences with the figures of the records."""

from dataclasses import replace
from pathlib import Path

from tools.pages.findings import _at_equal_size, findings, missing, status
from tools.results import RECORDS

from vbdrop.experiments import Book, protocol_of, table
from vbdrop.experiments.tables import stat


def test_without_records_nothing_is_claimed():
    assert findings(Path("no/such/folder")) == "Nothing has been recorded yet.\n"
    assert "Table 3: 9 of 9 cells have not been run." in missing(Path("no/such/folder"))
    assert "Ablations: " in missing(Path("no/such/folder"))
    assert " 0 have figures" in status(Path("no/such/folder"))


def test_the_status_tells_settings_that_were_chosen_from_defaults(tmp_path, write_record):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab"})
    for config in (*book.cell("none", "1").finals, *book.cell("vbd", "1").finals):
        write_record(config)
    assert "have figures: 1 with settings that the validation split chose or with nothing to choose, 1 with" in status(
        tmp_path
    )
    assert "The lowest" in findings(tmp_path)


def test_one_method_is_not_the_lowest_of_several(tmp_path, write_record):
    write_record(Book(protocol_of(3), tmp_path, {"svhn": "ab"}).cell("vbd", "1").finals[0])
    assert "SVHN" in findings(tmp_path)
    assert "The lowest" not in findings(tmp_path)


def test_the_figures_are_those_of_the_tables():
    text = findings(RECORDS)
    cells = table(Book(protocol_of(4), RECORDS)).cells
    once = {cell.runs: cell for cell in cells if cell.row.ours and cell.ours is not None}
    assert once
    for cell in once.values():
        assert f"{cell.ours.ratio.mean:.0f} times fewer weights at {cell.ours.error.mean:.2f}" in text
        assert f"the paper has {cell.paper.ratio:.0f} times at {cell.paper.error:.2f} %" in text
    errors = [cell for cell in table(Book(protocol_of(1), RECORDS), columns=["340"]).cells if cell.ours is not None]
    best = min(errors, key=lambda cell: cell.ours.error.mean)
    mixed = ", older runs (†) among them" * any(cell.older for cell in errors)
    assert f"The lowest of {len(errors)} methods{mixed} is {best.row.title}." in text


def test_two_methods_are_compared_where_they_have_the_same_size():
    template = table(Book(protocol_of(4), RECORDS)).cell("vbd", "lenet-300-100")

    def cell(ratio, *curve):
        return replace(template, ours=replace(template.ours, ratio=stat([ratio])), curves=(curve,))

    vbd, rival = cell(90.0, (90.0, 1.0), (1000.0, 3.0)), cell(100.0, (100.0, 1.5), (1000.0, 4.0))
    (said,) = _at_equal_size(vbd, rival)
    assert said.startswith("Cut by the threshold to 100 times fewer weights")
    assert said.endswith("% and sparse VD 1.50 %.")
    assert _at_equal_size(vbd, cell(200.0, (200.0, 1.5))) == []  # too far apart
    assert _at_equal_size(vbd, replace(rival, curves=())) == []
