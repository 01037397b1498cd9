"""How a table reads."""

from dataclasses import replace
from pathlib import Path

import pytest

from vbdrop.experiments import Book, layout, markdown, protocol_of, table
from vbdrop.experiments.table_text import chosen, described, missing, notes


@pytest.fixture
def book(tmp_path, write_record, write_trials):
    book = Book(protocol_of(1), tmp_path, {"mnist": "ab"})
    write_trials(book, "vbd", "340", [{"error": error} for error in (1.7, 1.9, 1.8, 2.0, 2.1, 2.2, 2.3, 2.4)])
    for config, error in zip(book.cell("vbd", "340").finals, (1.5, 1.6, 1.7), strict=True):
        write_record(config, error=error)
    write_record(book.cell("vbd", "100").finals[0], error=1.9)
    return book


def test_errors_stand_beside_the_papers(book):
    (sheet,) = layout(table(book))
    assert sheet.header[:5] == ("Method", "100 units", "paper", "340 units", "paper")
    row = next(row for row in sheet.rows if row[0] == "VBD")
    assert row[1:7] == ("1.90 (n=1)", "1.56", "1.60 ± 0.10 (n=3)", "1.53", "not run", "1.53")
    assert [row[0] for row, ours in zip(sheet.rows, sheet.ours, strict=True) if ours] == ["VBD"]
    extra = next(row for row in sheet.rows if row[0] == "VD (type A)")
    assert extra[2] == "–"


def test_what_was_chosen_is_printed_with_its_validation_error(book):
    sheet = chosen(table(book))
    setting, second = ("per = weight, kl_weight = 0.1‡, rate = 0.1‡", "per = weight, kl_weight = 1, rate = 0.1")
    assert sheet.rows == (("VBD", "340 units", setting, "1.70 (n=2)", second, "+0.10 points", "8"),)
    assert chosen(table(Book(protocol_of(1), Path("none")))) is None


def test_the_runner_up_of_a_small_network_has_its_size_beside_it(tmp_path, write_trials):
    book = Book(protocol_of(4), tmp_path, {"mnist": "ab"})
    sizes = (6000, 5000, 4000, 3000, 2000, 1000)
    write_trials(book, "vbd", "lenet-300-100", [{"error": 2.0 + size / 1e5, "nonzero": size} for size in sizes])
    (row,) = chosen(table(book, rows=["vbd"], columns=["lenet-300-100"])).rows
    assert row[2:] == (
        "kl_weight = 3‡",
        "2.01 (n=2), 1,000 weights",
        "kl_weight = 2",
        "+0.01 points, +100 % weights",
        "3",
    )


def test_compression_has_a_sheet_a_network(tmp_path, write_record, write_trials):
    book = Book(protocol_of(5), tmp_path, {"mnist": "ab"})
    write_trials(book, "vbd", "lenet-500-300", [{"compact_weights": 50_000}] * 6)
    for config in book.cell("vbd", "lenet-500-300").finals[:1]:
        write_record(config, error=1.4, units=[180, 150, 60, 10], compact_ratio=14.31)
    first, second = layout(table(book))
    assert (first.title, second.title) == ("LeNet-500-300", "LeNet-5-Caffe")
    row = next(row for row in first.rows if row[0] == "VBD (gates)")
    assert row == ("VBD (gates)", "1.40", "1.35", "14.3x", "14x", "1", "180-150-60-10", "179-160-60-10")
    same = next(row for row in first.rows if row[0] == "VIBNet")
    assert same[1:5:2] == row[1:5:2]
    assert "VIBNet is VBD (gates) on LeNet-500-300: one objective, and the same runs." in notes(table(book))
    row = next(row for row in second.rows if row[0] == "SBP")
    assert row == ("SBP", "not run", "0.86", "–", "5.09x", "–", "–", "3-18-284-283")


def test_a_figure_with_the_defaults_is_marked(book, write_record):
    write_record(book.cell("concrete", "340").finals[0], error=1.55)
    whole = table(book)
    row = next(row for row in layout(whole)[0].rows if row[0] == "Concrete dropout")
    assert row[3] == "1.55 (n=1)*"
    assert not any("†" in note for note in notes(whole))
    assert any(note.startswith("* With settings that may change, the method's defaults") for note in notes(whole))
    (command,) = [command for command in missing(whole) if "--row concrete" in command]
    everywhere = "100 units, 340 units, 580 units, 820 units, 1060 units"
    assert command == f"vbdrop table 1 --run --row concrete  # {everywhere}: 12 trials, then 1 run"


def test_a_figure_of_another_arithmetic_is_marked_and_gives_way_to_the_tables_own(book, write_record):
    own = book.cell("concrete", "340").finals[0]
    write_record(replace(own, arithmetic="kernels"), error=1.25)

    def shown():
        whole = table(Book(book.protocol, book.records, {"mnist": "ab"}))
        said = any(note.startswith("† Older runs, with other arithmetic") for note in notes(whole))
        return next(row for row in layout(whole)[0].rows if row[0] == "Concrete dropout")[3], said

    assert shown() == ("1.25 (n=1)†", True)
    write_record(own, error=1.55)
    assert shown() == ("1.55 (n=1)*", False)


def test_the_commands_of_what_is_missing(book):
    commands = missing(table(book))
    assert "vbdrop table 1 --run --row vbd  # 580 units, 820 units, 1060 units: 1 run" in commands
    (command,) = missing(table(book, rows=["vbd"], columns=["580"]), " --records here")
    assert command == "vbdrop table 1 --run --row vbd --column 580 --records here  # 1 run"
    assert missing(table(book, rows=["vbd"], columns=["340"])) == []
    assert missing(table(Book(protocol_of(2), Path("none")))) == ["vbdrop table 2 --run"]
    assert missing(table(Book(protocol_of(2, quick=True), Path("none")))) == ["vbdrop table 2 --quick"]


def test_the_value_at_an_end_has_the_mark_itself(book):
    cells = [replace(cell, edges=("rate",)) if cell.choice else cell for cell in table(book).cells]
    (row,) = chosen(replace(table(book), cells=tuple(cells))).rows
    assert row[2] == "per = weight, kl_weight = 0.1, rate = 0.1‡"
    assert described({"rate": 0.1, "input_rate": 0.0}, marked=["rate"]) == "rate = 0.1‡, input_rate = 0"
    assert chosen(table(book)).header[5] == "runner-up minus chosen"


def test_an_older_run_has_its_epochs_where_the_column_has_others(tmp_path, write_record):
    book = Book(protocol_of(2), tmp_path, {"cifar10": "ab"})
    for row, epochs in (("vbd", 10), ("concrete", 30)):
        own = book.cell(row, "1").finals[0]
        write_record(replace(own, arithmetic="kernels", budget=replace(own.budget, epochs=epochs)), error=38.65)
    whole = table(Book(book.protocol, tmp_path, {"cifar10": "ab"}))
    rows = {row[0]: row[1] for row in layout(whole)[0].rows}
    assert (rows["VBD"], rows["Concrete dropout"]) == ("38.65 (n=1, 10 epochs)†", "38.65 (n=1)†")
    assert whole.as_dict()["cells"][-3]["other_epochs"] == 10


def test_columns_with_other_epochs_say_so(book):
    headers = [layout(table(Book(protocol_of(number), Path("none"))))[0].header for number in (1, 2, 3)]
    assert headers[0][1] == "100 units"
    assert headers[1][1::2] == ("scale 1, 30 epochs", "scale 1.5, 10 epochs", "scale 2, 10 epochs")
    assert headers[2][1] == "scale 1"


def test_markdown(book):
    text = markdown(table(book))
    lines = text.splitlines()
    assert lines[0] == "# Table 1: Test error (%) on MNIST, three hidden layers"
    assert lines[2].startswith("| Method | 100 units | paper |")
    assert any(line.startswith("| **VBD** | 1.90 (n=1) | 1.56 |") for line in lines)
    assert "## Chosen on the validation split" in lines
    assert any(line.startswith("$ vbdrop table 1 --run --row none  # 100 units, ") for line in lines)
    assert "Still to run" not in markdown(table(book), commands=False)
    assert all(line.count("|") == lines[2].count("|") for line in lines[2:14])
