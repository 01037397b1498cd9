"""``vbdrop table``."""

import json
from pathlib import Path

from vbdrop.experiments import Book, layout, protocol_of
from vbdrop.experiments import table as read_table

PLAIN = ("plain", "lenet-300-100")


def test_a_table_without_records_is_the_papers_with_the_command_to_run_it(vbdrop, tmp_path):
    result = vbdrop("table", "4", "--records", tmp_path / "none")
    assert result.code == 0
    (line,) = (line for line in result.out.splitlines() if "VBD (high sparsity)" in line and "1.76" in line)
    assert "not run" in line
    assert "98.9-98.1-90.9" in line
    assert "81x" in line
    assert f"  vbdrop table 4 --run --records {tmp_path / 'none'}\n" in result.out
    assert not (tmp_path / "none").exists()
    found = vbdrop("table", "1", "--json", "--records", tmp_path / "none").json
    assert found["cells"][0]["command"] == "vbdrop table 1 --run --row none --column 100"


def test_a_part_of_a_table_is_run_and_then_printed(vbdrop, tmp_path):
    part = ("table", "4", "--quick", "--row", "original", "--column", "lenet-300-100", "--records", tmp_path)
    result = vbdrop(*part, "--workers", "1")
    assert result.code == 0
    assert result.err.startswith("1 run to make: about ")
    assert "1/1  plain on lenet-300-100, seed 0  error " in result.err
    assert "Still to run" not in result.out
    assert "Chosen on the validation split" not in result.out  # the original has nothing to choose
    (cell,) = vbdrop(*part, "--json").json["cells"]
    assert cell["ours"]["error"]["n"] == 1
    assert f"{cell['ours']['error']['mean']:.2f}" in result.out
    assert cell["validation"] is None
    assert len(cell["runs"]) == 1

    run = tmp_path / cell["runs"][0]
    (run / "result.json").unlink()
    (run / "checkpoint.pt").write_text("damaged")
    failed = vbdrop(*part, "--workers", "1")
    assert failed.code == 1
    assert "failed: " in failed.err
    assert "checkpoint.pt is damaged" in failed.err
    assert "not run" in failed.out

    whole = vbdrop(*part, "--cost", "--row", "rigl", "--json").json
    plain = [(kind["trials"], kind["runs"]) for kind in whole if (kind["method"], kind["network"]) == PLAIN]
    assert plain == [(2, 3)]  # the reference of the other row, with two seeds, and the run that failed


def test_without_trials_there_is_a_run_a_seed(vbdrop, tmp_path):
    part = ("table", "1", "--quick", "--defaults", "--row", "vbd", "--column", "100", "--records", tmp_path)
    (kind,) = vbdrop(*part, "--seeds", "2", "--cost", "--json").json
    assert (kind["trials"], kind["runs"]) == (0, 2)
    assert "`--seeds` must be" in vbdrop(*part, "--seeds", "0").err


def test_the_commands_go_on_in_the_same_folder_with_as_many_seeds(vbdrop, tmp_path):
    folder = tmp_path / "my records"
    said = vbdrop("table", "3", "--row", "vbd", "--seeds", "2", "--records", folder).out
    assert (
        f"vbdrop table 3 --run --row vbd --column 1 --seeds 2 --records '{folder}'  # 14 trials, then 2 runs\n" in said
    )


def test_the_cost_says_which_runs_get_cheaper_as_they_train(vbdrop, tmp_path):
    part = ("table", "5", "--quick", "--defaults", "--column", "lenet-500-300", "--cost", "--records", tmp_path)
    assert "get cheaper as they train" in vbdrop(*part, "--row", "vbd").out
    assert "get cheaper as they train" not in vbdrop(*part, "--row", "ssl").out


def test_a_table_is_written_only_where_it_was_asked_to(vbdrop, tmp_path):
    records = tmp_path / "records"
    records.mkdir()
    assert "Written to" not in vbdrop("table", "3", "--records", records).out
    assert list(records.iterdir()) == []
    files = tmp_path / "three.md", tmp_path / "three.json"
    result = vbdrop("table", "3", "--records", records, "--output", files[0], "-o", files[1])
    assert f"Written to {files[0]} and {files[1]}\n" in result.out
    assert "| No dropout | not run | 22.01 |" in files[0].read_text()
    assert json.loads(files[1].read_text())["table"] == 3
    assert list(records.iterdir()) == []


def test_a_file_that_cannot_be_written_is_said_before_anything_is_run(vbdrop, tmp_path):
    quick = ("table", "4", "--quick", "--records", tmp_path / "records", "--output")
    assert "`--output` must end in .md or .json; got" in vbdrop(*quick, tmp_path / "four.pdf").err
    assert "there is no folder" in vbdrop(*quick, tmp_path / "none" / "four.md").err
    assert not (tmp_path / "records").exists()


def test_mistakes(vbdrop, tmp_path):
    assert "`row` of Table 4 must be one of original" in vbdrop("table", "4", "--row", "magic").err
    assert "`--defaults` says how to run" in vbdrop("table", "4", "--defaults").err
    assert "`column` of Table 4 must be one of lenet-300-100" in vbdrop("table", "4", "--column", "1").err
    missing = vbdrop("table", "4", "--run", "--data-dir", tmp_path)
    assert missing.code == 1
    assert "vbdrop data get mnist" in missing.err


def test_no_figure_is_broken_on_a_narrow_terminal(vbdrop, monkeypatch):
    """A number on two lines reads as two numbers."""
    monkeypatch.setenv("COLUMNS", "60")
    records = Path(__file__).parents[2] / "records"
    out = vbdrop("table", 4, "--records", records).out
    for sheet in layout(read_table(Book(protocol_of(4), records))):
        assert all(cell in out for row in sheet.rows for cell in row)
