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
    assert f"The lowest of {len(errors)} methods is {best.row.title}" in text


def test_older_and_single_runs_rank_nothing_and_have_their_mark(tmp_path, write_record, write_trials):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab"})
    write_trials(book, "vbd", "1", [{"error": 2.0}] * 8)
    for row in ("none", "vbd"):
        for config in book.cell(row, "1").finals:
            write_record(config, error=3.0 if row == "none" else 2.5)
    assert "The lowest of 2 methods is VBD." in findings(tmp_path)
    single = book.cell("bernoulli", "1").finals[0]
    write_record(single)
    assert "is Dropout, Bernoulli; that is no ranking, since single runs are 0.1 points and more" in findings(tmp_path)
    write_record(replace(book.cell("concrete", "1").finals[0], arithmetic="kernels"), error=1.5)
    text = findings(tmp_path)
    assert "Concrete dropout 1.50 % (n = 1) †, the paper 18.95 %" in text
    assert "that is no ranking, since older runs (†) are among them and single runs" in text


def test_the_plain_network_has_its_mark_too(tmp_path, write_record):
    book = Book(protocol_of(4), tmp_path, {"mnist": "ab"})
    for row in ("original", "vbd"):
        write_record(replace(book.cell(row, "lenet-5").finals[0], arithmetic="kernels"))
    assert "The original network has 2.00 % (n = 1) †." in findings(tmp_path)


def test_two_methods_are_compared_where_they_have_the_same_size():
    template = table(Book(protocol_of(4), RECORDS)).cell("vbd", "lenet-300-100")

    def cell(ratio, *curve):
        return replace(template, ours=replace(template.ours, ratio=stat([ratio])), curves=(curve,))

    vbd, rival = cell(90.0, (90.0, 1.0), (1000.0, 3.0)), cell(100.0, (100.0, 1.5), (1000.0, 4.0))
    (said,) = _at_equal_size(vbd, rival)
    assert said.startswith("Cut by the threshold to 100 times fewer weights")
    mark = " †" * template.older
    assert said.endswith(f"%{mark} and sparse VD 1.50 %{mark} (n = 1 and 1).")
    assert _at_equal_size(vbd, cell(200.0, (200.0, 1.5))) == []  # too far apart
    assert _at_equal_size(vbd, replace(rival, curves=())) == []
