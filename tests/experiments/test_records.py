"""A run's folder: its own, whole, and one process at a time."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from vbdrop.experiments import Record, all_records, record_of
from vbdrop.train import RecordError


def test_a_folder_belongs_to_one_run(tiny, tmp_path):
    config = tiny()
    record = record_of(config, tmp_path)
    record.open(config)
    record.open(config)
    assert record.config.id == config.id
    assert not record.finished
    with pytest.raises(RecordError, match="holds another run"):
        record.open(replace(config, n_train=200))
    assert [each.folder for each in all_records(tmp_path)] == [record.folder]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", '{"method"', r"is no run: .*config\.json is damaged"),
        ("config.json", "[]", "is no run: the settings of a run must have"),
        ("result.json", "", r"result\.json is damaged"),
        ("result.json", '{"error": 1.5}', r"result\.json is damaged: it lacks epochs, evaluated_on, outcome, run"),
        ("result.json", "[1]", "must hold a JSON object"),
        ("metrics.jsonl", "no\n", r"metrics\.jsonl is damaged"),
    ],
)
def test_damage_is_said(tiny, write_record, name, text, message):
    record = write_record(tiny())
    (record.folder / name).write_text(text)
    with pytest.raises(RecordError, match=message):
        getattr(record, name.partition(".")[0])


def test_a_file_in_the_place_of_the_folder(tiny, tmp_path):
    (tmp_path / "records").write_text("a file")
    with pytest.raises(RecordError, match=r"cannot write to .*records"):
        record_of(tiny(), tmp_path / "records").open(tiny())


def test_one_process_at_a_time(tmp_path):
    record = Record(tmp_path)
    with record.lock() as first:
        assert first
        with record.lock() as second:
            assert not second
    with record.lock() as again:
        assert again
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from filelock import FileLock\n"
        "lock = FileLock(sys.argv[1]); lock.acquire(); print('held', flush=True); time.sleep(60)"
    )
    path = tmp_path / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with Record(tmp_path).lock() as held:
            assert not held
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert path.exists()
    with Record(tmp_path).lock() as held:
        assert held


def test_what_was_written_comes_back(tiny, write_record):
    record = write_record(tiny(), error=1.25)
    assert record.finished
    assert record.result["error"] == 1.25
    assert record.environment["sessions"][0]["threads"] == 1
    assert json.loads((record.folder / "config.json").read_text()) == tiny().as_dict()
