import threading

import pytest
import torch

from vbdrop.integrations.travelling_folder import contents, put, work_in_folder


def test_files_travel_with_each_checkpoint_and_at_the_end():
    seen = threading.Event()

    def work(folder, say):
        assert (folder / "metrics.jsonl").read_text() == "one\n"
        with (folder / "metrics.jsonl").open("a") as file:
            file.write("two\n")
        put(folder, {"checkpoint.pt": b"second"}, last="checkpoint.pt")
        say("half way")
        assert seen.wait(30)
        (folder / "checkpoint.pt").unlink()
        put(folder, {"result.json": b"{}"}, last="result.json")
        return {"threads": torch.get_num_threads()}

    events = work_in_folder(work, "run", {"metrics.jsonl": b"one\n", "checkpoint.pt": b"first"}, "checkpoint.pt")
    kept, line = sorted((next(events), next(events)), key=lambda event: event["kind"])
    assert kept == {"kind": "files", "files": {"checkpoint.pt": b"second", "metrics.jsonl": b"one\ntwo\n"}}
    assert line == {"kind": "line", "line": "half way"}
    seen.set()
    (ended,) = events
    assert ended["answer"] == {"threads": 1}
    assert ended["files"] == {"metrics.jsonl": b"one\ntwo\n", "result.json": b"{}"}


def test_what_goes_wrong_is_raised_where_somebody_waits():
    def work(folder, say):
        raise ZeroDivisionError("no runs")

    with pytest.raises(ZeroDivisionError, match="no runs"):
        list(work_in_folder(work, "run", {}, "checkpoint.pt"))


def test_a_lock_and_temporary_files_stay(tmp_path):
    for name in (".lock", ".result.json.part", "result.json"):
        (tmp_path / name).write_text("")
    (tmp_path / "folder").mkdir()
    assert list(contents(tmp_path, first="result.json")) == ["result.json"]
    assert contents(tmp_path / "no such folder", first="result.json") == {}


def test_a_file_cannot_leave_its_folder(tmp_path):
    with pytest.raises(ValueError, match=r"without a folder; got '\.\./result.json'"):
        put(tmp_path / "run", {"../result.json": b""}, last="result.json")
    assert not (tmp_path / "result.json").exists()
