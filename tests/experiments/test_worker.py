"""The worker's process: its lines, and its end."""

import json
import os
import subprocess
import sys

import pytest

from vbdrop.experiments import record_of


@pytest.fixture
def worker():
    process = subprocess.Popen(
        [sys.executable, "-m", "vbdrop.experiments.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def ask(worker, config, records):
    task = {"config": config.as_dict(), "records": str(records), "data_dir": None, "keep_weights": False}
    worker.stdin.write(json.dumps(task) + "\n")
    worker.stdin.flush()


def answer(worker):
    while (line := json.loads(worker.stdout.readline()))["kind"] == "progress":
        assert set(line) == {"kind", "done", "steps", "said"}
    return line


def test_answers_and_the_end_of_the_input_in_the_middle_of_a_run(worker, tiny, tmp_path):
    config = tiny(epochs=1)
    ask(worker, config, tmp_path)
    assert answer(worker) == {"kind": "finished"}
    record = record_of(config, tmp_path)
    (record.folder / "result.json").unlink()
    with record.lock():
        ask(worker, config, tmp_path)
        assert answer(worker) == {"kind": "busy"}
    (record.folder / "config.json").write_text("{")
    ask(worker, config, tmp_path)
    said = answer(worker)
    assert said["kind"] == "failed"
    assert "is no run" in said["error"]
    assert "\n" not in said["error"]

    long = tiny(epochs=100_000)
    ask(worker, long, tmp_path)
    assert json.loads(worker.stdout.readline())["kind"] == "progress"
    worker.stdin.close()
    assert worker.wait(timeout=120) == 0  # the run itself would take hours
    with record_of(long, tmp_path).lock() as free:
        assert free
