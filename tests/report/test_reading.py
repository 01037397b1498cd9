"""Records in: whole ones are read, all others say what is wrong with them."""

import pytest

from vbdrop.report.reading import ReportError, read_run


def test_a_whole_record(made):
    run = read_run(made["vbd"])
    assert (run.config["method"], run.has_weights, run.diverged) == ("vbd-weights", True, False)
    assert [line["epoch"] for line in run.metrics] == [1, 2, 3, 4]
    assert run.details["run"] == run.measured["run"] == run.id
    assert read_run(made["plain"]).measured is None


def test_a_folder_of_runs_is_not_a_run(made):
    with pytest.raises(ReportError, match=f"no config.json in it; it holds the runs {made['plain'].name}"):
        read_run(made["plain"].parent)


def test_a_run_that_has_not_ended(copied):
    with pytest.raises(ReportError, match="has not ended"):
        read_run(copied(without=["result.json"]))


@pytest.mark.parametrize("file", ["config.json", "result.json", "details.json", "measured.json", "environment.json",
                                  "metrics.jsonl"])  # fmt: skip
@pytest.mark.parametrize("content", [b"{", b"[1]\n", b"{}\n", b"\xff\n"])
def test_a_damaged_file_is_named(copied, file, content):
    folder = copied()
    (folder / file).write_bytes(content if content.endswith(b"\n") else content + b"\n")
    with pytest.raises(ReportError, match=f"{file} is damaged"):
        read_run(folder)


def test_a_missing_file_of_metrics_is_named(copied):
    with pytest.raises(ReportError, match=r"cannot read .*metrics.jsonl"):
        read_run(copied(without=["metrics.jsonl"]))


def test_details_of_another_run_are_not_shown(copied):
    with pytest.raises(ReportError, match=r"details.json belongs to another run, abc"):
        read_run(copied(details={"run": "abc"}))


def test_a_line_of_metrics_that_is_still_being_written_is_left_out(copied):
    folder = copied()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 5, "lo')
    assert len(read_run(folder).metrics) == 4
