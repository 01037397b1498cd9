from dataclasses import replace

import pytest
from tools.results import BEGIN, END, main, replaced, results

from vbdrop.experiments import Book, protocol_of


def test_the_readme_has_the_results_of_the_records():
    assert main(["--check"]) == 0, "run python -m tools.results"


@pytest.fixture
def record(tmp_path, write_record):
    """Writes a finished run of VBD on LeNet-300-100 with its default settings."""
    own = Book(protocol_of(4), tmp_path, {"mnist": "ab"}).cell("vbd", "lenet-300-100").finals

    def write(seed, error, arithmetic="plain"):
        write_record(replace(own[seed], arithmetic=arithmetic), error=error, ratio=90.98)

    return write


def test_figures_are_those_of_the_records_and_settings_that_nobody_chose_are_marked(tmp_path, record):
    assert results(tmp_path) == "Nothing has been recorded yet.\n"
    record(seed=0, error=1.5)
    text = results(tmp_path)
    assert "| LeNet-300-100 | **VBD (high sparsity)** | 1.50 * | 1.76 | 91x | 81x |" in text
    assert "one run each" in text
    assert "neurons" not in text
    record(seed=1, error=1.9)
    assert "| 1.70 ± 0.28 (n = 2) * |" in results(tmp_path)


def test_runs_that_the_table_does_not_ask_for_are_marked(tmp_path, record):
    record(seed=0, error=1.5, arithmetic="kernels")
    text = results(tmp_path)
    assert "| LeNet-300-100 | **VBD (high sparsity)** | 1.50 † | 1.76 | 91x | 81x |" in text
    assert "† runs of an older version, whose arithmetic differs; not comparable with the rest." in text
    assert text.startswith("All 6 of the paper's claims that runs can decide are undecided so far: see [what")
    assert "CIFAR-10" not in text
    record(seed=0, error=1.7)
    assert "†" not in results(tmp_path)


def test_weights_that_are_left_and_weights_between_neurons_are_not_in_one_table(tmp_path, write_record):
    for number, row, column in ((4, "pruning", "lenet-300-100"), (5, "vbd", "lenet-500-300")):
        write_record(Book(protocol_of(number), tmp_path, {"mnist": "ab"}).cell(row, column).finals[0])
    weights, neurons = results(tmp_path).split("Fewer neurons, MNIST")
    assert "Pruning (Han)" in weights
    assert "Pruning (Han)" not in neurons
    assert "| **VBD (gates)** | 2.00 * | 1.35 | 4.0x | 14.0x | 784-20-10 |" in neurons
    assert "VIBNet" not in neurons  # the same runs


def test_only_what_is_between_the_marks_is_replaced():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replaced(page, "new\n") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replaced(replaced(page, "new\n"), "new\n") == replaced(page, "new\n")
    with pytest.raises(SystemExit, match="must have one line"):
        replaced("no marks", "new")


def test_a_readme_with_other_figures_is_seen(monkeypatch, tmp_path, capsys):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\n| 0.00 |\n{END}\nafter\n")
    monkeypatch.setattr("tools.results.README", page)
    monkeypatch.setattr("tools.results.RECORDS", tmp_path / "none")
    assert main(["--check"]) == 1
    assert "python -m tools.results" in capsys.readouterr().err
    assert "0.00" in page.read_text()
    assert main([]) == 0
    assert "Nothing has been recorded yet." in page.read_text()
    assert main(["--check"]) == 0


def test_fewer_epochs_than_in_the_paper_are_said(tmp_path, write_record):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab"})
    write_record(book.cell("none", "1").finals[0], error=14.62)
    assert "CIFAR-10 and SVHN: 30 epochs where the paper has 100." in results(tmp_path)
    own = book.cell("vbd", "1").finals[0]
    write_record(replace(own, arithmetic="kernels", budget=replace(own.budget, epochs=7)), error=13.38)
    text = results(tmp_path)
    assert "| **VBD** | 13.38 (7 epochs) † | 17.46 |" in text
    assert "CIFAR-10 and SVHN: 30 epochs (†: fewer) where the paper has 100." in text
