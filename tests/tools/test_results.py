import json
from pathlib import Path

import pytest
from tools.results import BEGIN, END, README, RECORDS, main, replaced, results

from vbdrop.experiments import Book, protocol_of, resolve, table
from vbdrop.methods import METHODS


def test_the_readme_has_the_results_of_the_records():
    assert main(["--check"]) == 0, "run python -m tools.results"


def record(folder: Path, seed: int, error: float, arithmetic: str = "plain") -> None:
    """A finished run of VBD on LeNet-300-100 with its default settings."""
    column = protocol_of(4).column("lenet-300-100")
    method = METHODS["vbd-weights"]()
    config = resolve(
        method,
        model=column.model,
        data=column.data,
        checksum="0" * 64,
        budget=column.budget_of(method, seed),
        arithmetic=arithmetic,
    )
    template = json.loads(next(RECORDS.glob("vbd-weights-lenet-300-100-mnist-*/result.json")).read_text())
    (folder / config.name).mkdir(parents=True)
    (folder / config.name / "config.json").write_text(json.dumps(config.as_dict()))
    figures = {"run": config.id, "error": error, "ratio": 90.98}
    (folder / config.name / "result.json").write_text(json.dumps(template | figures))


def test_figures_are_those_of_the_records_and_settings_that_nobody_chose_are_marked(tmp_path):
    assert results(tmp_path) == "Nothing has been recorded yet.\n"
    record(tmp_path, seed=0, error=1.5)
    text = results(tmp_path)
    assert "| LeNet-300-100 | **VBD (high sparsity)** | 1.50 * | 1.76 | 91x | 81x |" in text
    assert "one run each" in text
    assert "neurons" not in text
    record(tmp_path, seed=1, error=1.9)
    assert "| 1.70 ± 0.28 (n = 2) * |" in results(tmp_path)


def test_runs_that_the_table_does_not_ask_for_are_marked(tmp_path):
    record(tmp_path, seed=0, error=1.5, arithmetic="kernels")
    text = results(tmp_path)
    assert "| LeNet-300-100 | **VBD (high sparsity)** | 1.50 † | 1.76 | 91x | 81x |" in text
    assert "† with an arithmetic, budget or setting that the table does not ask for today" in text
    record(tmp_path, seed=0, error=1.7)
    assert "†" not in results(tmp_path)


def test_weights_that_are_left_and_weights_between_neurons_are_not_in_one_table():
    weights, neurons = results(RECORDS).split("Fewer neurons, MNIST")
    assert "Pruning (Han)" in weights
    assert "Pruning (Han)" not in neurons
    cell = table(Book(protocol_of(5), RECORDS)).cell("vbd", "lenet-500-300")
    units = "-".join(f"{n:.0f}" for n in cell.ours.units)
    assert f"| {cell.ours.compact_ratio.mean:.0f}x | 14.0x | {units} |" in neurons


def test_only_what_is_between_the_marks_is_replaced():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replaced(page, "new\n") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replaced(replaced(page, "new\n"), "new\n") == replaced(page, "new\n")
    with pytest.raises(SystemExit, match="must have one line"):
        replaced("no marks", "new")


def test_a_readme_with_other_figures_is_seen(monkeypatch, tmp_path, capsys):
    page = tmp_path / "README.md"
    page.write_text(README.read_text().replace(END, f"| 0.00 |\n{END}"))
    monkeypatch.setattr("tools.results.README", page)
    assert main(["--check"]) == 1
    assert "python -m tools.results" in capsys.readouterr().err
    assert main([]) == 0
    assert page.read_text() == README.read_text()
