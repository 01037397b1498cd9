"""A run from its settings to its result; killed at any moment, it ends with the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file
from tests.stress import only_in_stress
from tests.trained import below

from vbdrop.experiments import BusyError, execute, record_of, trained_model
from vbdrop.experiments.inputs import examples
from vbdrop.kernels.choice import takes
from vbdrop.methods import METHODS
from vbdrop.models import build
from vbdrop.train import RecordError, evaluate

SCRIPT = """
import json, sys
from pathlib import Path
import torch
from vbdrop.experiments import execute
from vbdrop.experiments.config import from_dict
torch.set_num_threads(1)
execute(from_dict(json.loads(sys.argv[1])), Path(sys.argv[2]), checkpoint_seconds=0)
"""


def test_what_a_run_leaves_behind(tiny, tmp_path):
    config = tiny(epochs=4, hyper={"kl_weight": 20.0})
    record = execute(config, tmp_path, keep_weights=True)
    files = {path.name for path in record.folder.iterdir()}
    assert files == {
        "config.json", "environment.json", "metrics.jsonl", "result.json", "weights.safetensors", "details.json",
        "network.safetensors",
        ".lock",
    }  # fmt: skip
    result, last = record.result, record.metrics[-1]
    assert (result["run"], result["outcome"], result["epochs"], result["evaluated_on"]) == (
        config.id, "finished", 4, "test",
    )  # fmt: skip
    assert [line["epoch"] for line in record.metrics] == [1, 2, 3, 4]
    assert (result["error"], result["nll"], result["kl"]) == (last["error"], last["nll"], last["kl"])
    assert result["error"] == 100 * result["wrong"] / 2000
    assert {layer["name"]: layer["nonzero"] for layer in result["layers"]} == last["nonzero"]
    assert result["weights"] == 784 * 12 + 2 * 144 + 120
    assert result["nonzero"] == sum(last["nonzero"].values()) < result["weights"]
    assert result["ratio"] == result["weights"] / result["nonzero"]
    assert set(result["rates"]) == {"hidden.0", "hidden.1", "hidden.2", "output"}
    (session,) = record.environment["sessions"]
    assert session["epochs"] == 4
    assert session["threads"] == torch.get_num_threads()
    text = (record.folder / "config.json").read_text() + (record.folder / "result.json").read_text()
    assert str(tmp_path) not in text
    assert "seconds" not in text

    model = config.build_method().build(build("mlp", **config.model_args))
    model.load_state_dict(load_file(record.folder / "weights.safetensors"))
    network = config.build_method().finish(model)
    assert evaluate(network, examples(config).test).error == result["error"]


@pytest.mark.trained
def test_a_run_that_shrinks_is_recorded_by_its_original_network(tiny, tmp_path):
    hyper = {"kl_weight": 0.1, "gate_lr": 10.0, "hold": 0.0, "ramp": 0.0}
    config = tiny("vbd-gates", epochs=12, lr=0.01, shrink_every=1, hyper=hyper)
    record = execute(config, tmp_path, keep_weights=True)
    result = record.result
    assert {line["weights"] for line in record.metrics} == {result["weights"]} == {784 * 12 + 2 * 144 + 120}
    assert [layer["inputs"] for layer in result["layers"]] == [784, 12, 12, 12]
    assert result["compact_weights"] <= result["nonzero"]
    below(0.8, result["nonzero"] / result["weights"], mean=0.192, sd=0.062)
    model = trained_model(record)
    assert evaluate(config.build_method().finish(model), examples(config).test).error == result["error"]


def test_the_plain_arithmetic_does_without_the_kernels_and_gives_the_bits_of_a_process_that_has_none(
    tiny, tmp_path, switched_on
):
    config = tiny(epochs=2, arithmetic="plain")
    before = takes(torch.zeros(3))
    record = execute(config, tmp_path / "here")
    assert takes(torch.zeros(3)) == before, "the switch is for the run alone"
    (session,) = record.environment["sessions"]
    assert (session["arithmetic"], session["versions"]["kernels"]) == ("plain", "none")
    arguments = [sys.executable, "-c", SCRIPT, json.dumps(config.as_dict()), str(tmp_path / "there")]
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    subprocess.run(arguments, check=True, env={**os.environ, **threads, "VBDROP_NATIVE": "0"})
    assert record_of(config, tmp_path / "there").result["network_sha256"] == record.result["network_sha256"]
    with_kernels = execute(tiny(epochs=2), tmp_path / "here")
    assert with_kernels.folder != record.folder
    assert with_kernels.result["network_sha256"] != record.result["network_sha256"]


def test_a_run_that_has_ended_is_not_made_again(tiny, tmp_path):
    record = execute(tiny(epochs=1), tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in record.folder.iterdir()}
    execute(tiny(epochs=1), tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in record.folder.iterdir()} == before


def test_the_seed_changes_the_figures_and_the_folder_does_not(tiny, reseeded, tmp_path):
    first, second = (execute(tiny(epochs=1), tmp_path / name).folder / "result.json" for name in ("a", "b"))
    other = execute(reseeded(tiny(epochs=1), 1), tmp_path / "a").folder / "result.json"
    assert first.read_bytes() == second.read_bytes()
    digests = [json.loads(path.read_text())["network_sha256"] for path in (first, other)]
    assert digests[0] != digests[1]


@only_in_stress
def test_killed_at_random_points_and_started_again(tiny, tmp_path):
    config = tiny(epochs=30, evaluate_every=10, hyper={"kl_weight": 20.0})
    whole = execute(config, tmp_path / "whole")
    folder = record_of(config, tmp_path / "killed").folder
    command = [sys.executable, "-c", SCRIPT, json.dumps(config.as_dict()), str(tmp_path / "killed")]
    moments = random.Random(4)
    reached = []
    for least in (0, 6, 14):
        process = subprocess.Popen(command)
        lines = moments.randint(least, least + 6)
        while len(_lines(folder)) < max(lines, 1) and process.poll() is None:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        reached.append(len(_lines(folder)))
        assert not (folder / "result.json").exists()
    assert subprocess.run(command, check=False).returncode == 0

    assert (folder / "result.json").read_bytes() == (whole.folder / "result.json").read_bytes()
    without = [[{k: v for k, v in line.items() if k != "seconds"} for line in r.metrics]
               for r in (whole, record_of(config, tmp_path / "killed"))]  # fmt: skip
    assert without[0] == without[1]
    sessions = record_of(config, tmp_path / "killed").environment["sessions"]
    assert ["ended" in session for session in sessions] == [False, False, False, True]
    assert sessions[-1]["epochs"] < 30, reached  # it went on, and did not start again


class StoppedError(Exception):
    pass


def stop_after(steps):
    def report(done, in_all, epoch):
        if done == steps:
            raise StoppedError

    return report


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_on_as_if_it_had_not_been_stopped(method, tiny, tmp_path):
    """What it remembers is in the model and the optimizer, in every phase of its run."""
    config = tiny(method, epochs=6)
    whole = execute(config, tmp_path / "whole").folder / "result.json"
    for steps in (2, 8, 13, 17):  # three steps an epoch
        with pytest.raises(StoppedError):
            execute(config, tmp_path / "stopped", report=stop_after(steps), checkpoint_seconds=0)
    again = execute(config, tmp_path / "stopped", checkpoint_seconds=0).folder / "result.json"
    assert again.read_bytes() == whole.read_bytes()


def _lines(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def test_a_damaged_checkpoint_is_an_error_that_says_what_to_do(tiny, tmp_path):
    config = tiny(epochs=2)
    record = record_of(config, tmp_path)
    record.open(config)
    (record.folder / "checkpoint.pt").write_bytes(b"x" * 1000)
    with pytest.raises(RecordError, match=r"is damaged .* delete it to start the run again"):
        execute(config, tmp_path)
    (record.folder / "checkpoint.pt").unlink()
    assert execute(config, tmp_path).finished


def test_a_run_that_diverges_ends_with_a_result_that_says_so(tiny, tmp_path):
    result = execute(tiny("plain", epochs=3, lr=1e30), tmp_path).result
    assert (result["outcome"], result["diverged_in_epoch"]) == ("diverged", 1)
    assert "error" not in result


def test_a_run_that_another_process_works_on(tiny, tmp_path):
    config = tiny()
    record = record_of(config, tmp_path)
    record.open(config)
    with record.lock(), pytest.raises(BusyError, match="another process is working on"):
        execute(config, tmp_path)
