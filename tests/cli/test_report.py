"""``vbdrop report``."""

import json

import pytest


@pytest.fixture
def run(vbdrop, tiny, tmp_path):
    assert vbdrop("train", "vbd-weights", *tiny, "--set", "kl_weight=20").code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def test_a_page_about_a_run(vbdrop, run, tmp_path):
    page = tmp_path / "pages/mine.html"
    result = vbdrop("report", run, "-o", page)
    assert (result.code, result.out) == (0, f"Written to {page}\n")
    error = json.loads((run / "result.json").read_text())["error"]
    assert f"<strong>{error:.2f} %</strong>" in page.read_text()
    assert page.read_text().count("<svg") >= 7


def test_by_default_the_page_is_written_here(vbdrop, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert vbdrop("report", run, run).code == 0
    assert "2 runs" in (tmp_path / "report.html").read_text()


def test_the_paper_s_five_tables_ours_beside_theirs(vbdrop, run, tmp_path):
    page = tmp_path / "tables.html"
    assert vbdrop("report", "--tables", "--records", run.parent, "-o", page).code == 0
    text = page.read_text()
    assert [f"Table {number}:" in text for number in range(1, 6)] == [True] * 5
    assert "98.9-98.1-90.9" in text, "the paper's figures"
    assert "not run" in text
    assert "vbdrop table 4 --run" in text


def test_mistakes_say_what_is_wrong_and_write_nothing(vbdrop, run, tmp_path):
    page = tmp_path / "report.html"
    neither, both = vbdrop("report", "-o", page), vbdrop("report", run, "--tables", "-o", page)
    assert (neither.code, both.code) == (2, 2)
    assert "at least one RUN, or --tables" in neither.err
    nothing = vbdrop("report", run, tmp_path / "none", "-o", page)
    assert (nothing.code, "none is not a run: there is no such folder" in nothing.err) == (1, True)
    assert vbdrop("report", "--tables", "--records", tmp_path / "none", "-o", page).code == 2
    (run / "details.json").write_text("{")
    damaged = vbdrop("report", run, "-o", page)
    assert (damaged.code, "details.json is damaged" in damaged.err) == (1, True)
    assert damaged.err.count("\n") == 1
    assert not page.exists()
