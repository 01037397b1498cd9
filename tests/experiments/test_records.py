"""A run's folder: its own, whole, and one process at a time."""

import fcntl
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from vbdrop.experiments import Record, all_records, record_of
from vbdrop.experiments.records import readable_config, recorded_checksums
from vbdrop.train import RecordError

DAMAGED_RESULT = json.dumps(
    {
        "run": "ab",
        "outcome": "finished",
        "epochs": 1,
        "evaluated_on": "test",
        "examples": 9,
        "wrong": 1,
        "error": "much",
    }
)


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
        ("result.json", '{"error": 1.5}', r"result\.json is damaged: `run` must be text; got nothing"),
        ("result.json", "[1]", r"result\.json is damaged: it must be an object; got \[1\]"),
        ("result.json", DAMAGED_RESULT, r"result\.json is damaged: `error` must be a number; got 'much'"),
        ("environment.json", "null", r"environment\.json is damaged: it must be an object; got nothing"),
        ("environment.json", "{}", r"environment\.json is damaged: `sessions` must be a list; got nothing"),
        ("environment.json", '{"sessions": 5}', r"environment\.json is damaged: `sessions` must be a list; got 5"),
        ("environment.json", '{"sessions": [{}]}', r"environment\.json is damaged: `sessions\[0\]\.versions` must be"),
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


def test_a_process_that_waits_for_the_lock_does_not_get_the_one_of_a_file_that_was_removed(tmp_path):
    """Open before the first lets go, lock after it: if the file was removed, a third process gets a lock too."""
    with Record(tmp_path).lock():
        waiting = (tmp_path / ".lock").open("w")
    with waiting:
        fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with Record(tmp_path).lock() as third:
            assert not third


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


def test_the_checksum_of_most_records_counts_and_damaged_ones_are_left_out(tiny, tmp_path):
    for seed, checksum in enumerate(("ab", "cd", "cd")):
        config = replace(tiny(), checksum=checksum, budget=replace(tiny().budget, seed=seed))
        record_of(config, tmp_path).open(config)
    assert recorded_checksums(tmp_path) == {"digits": "cd"}
    damaged = [record for record in all_records(tmp_path) if record.config.checksum == "cd"]
    for record in damaged:
        (record.folder / "config.json").write_text("{")
    assert recorded_checksums(tmp_path) == {"digits": "ab"}
    assert readable_config(damaged[0]) is None
