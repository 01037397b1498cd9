"""``vbdrop train``."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest


def test_a_run_its_report_and_its_record(vbdrop, tiny, tmp_path):
    result = vbdrop("train", "vbd-weights", *tiny, "--set", "kl_weight=20")
    assert result.code == 0
    assert "VBD · mlp · digits" in result.err
    assert "epoch       3/3" in result.err
    assert "test error" in result.out
    assert "times fewer" in result.out
    assert "hidden.0" in result.out
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"The record is in {folder}" in result.out.replace("\n", "")
    recorded = json.loads((folder / "result.json").read_text())
    assert f"{recorded['error']:.2f} %" in result.out

    again = vbdrop("train", "vbd-weights", *tiny, "--set", "kl_weight=20", "--json")
    assert "has already ended" in again.err
    assert again.json == recorded
    elsewhere = ("--config", folder / "config.json", "--records", tmp_path / "again", "--no-weights", "--json")
    assert vbdrop("train", *elsewhere).json == recorded
    assert not list((tmp_path / "again").glob("*/weights.safetensors"))


def test_a_run_that_shrinks_has_a_record_of_its_own(vbdrop, tiny, tmp_path):
    assert vbdrop("train", "vbd-gates", *tiny, "--shrink-every", 2).code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "config.json").read_text())["budget"]["shrink_every"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a METHOD, one of plain"),
        (("plain", "--config", "x"), "give a METHOD"),
        (("--config", "no/such.json"), "cannot read no/such.json"),
        (("magic",), "`method` must be one of"),
        (("plain", "--data", "imagenet"), "must be one of digits, mnist"),
        (("plain", "--model", "resnet"), "`--model` must be one of mlp"),
        (("plain", "--normalise", "no"), "`--normalise` must be one of unit"),
        (("plain", "--schedule", "no"), "`--schedule` must be one of constant"),
        (("plain", "--epochs", "0"), "`--epochs` must be an int >= 1; got 0"),
        (("plain", "--shrink-every", "1"), "`--shrink-every` must be None for Plain"),
        (("plain", "--valid", "-1"), "`--valid` must be a number of examples"),
        (("plain", "--valid", "8000"), "`--valid` must be between 1 and 7999"),
        (("plain", "--examples", "9000"), "`--examples` must be at most the 8000 training examples"),
        (("plain", "--model", "mlp", "--model-arg", "units=abc"), "`units` must be a number of units"),
        (("plain", "--threads", "0"), "greater than or equal to 1"),
        (("--config", "x.json", "--epochs", "3", "--lr", "0.1"), "cannot be combined with --epochs, --lr"),
        (("vbd-weights", "--set", "kl_weight=-1"), "`kl_weight` of VBDWeights must be at least 0; got -1"),
        (("vbd-weights", "--set", "speed=1"), "has no hyper-parameter 'speed'"),
    ],
)
def test_mistakes_are_said_before_anything_is_run(vbdrop, arguments, said, tmp_path):
    result = vbdrop("train", *arguments, "--records", tmp_path / "runs")
    assert result.code == 2
    assert said in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_run_that_diverges_fails(vbdrop, tiny):
    result = vbdrop("train", "plain", *tiny, "--lr", "1e30")
    assert result.code == 1
    assert "The loss became infinite in epoch 1." in result.out


def test_a_record_that_is_damaged(vbdrop, tiny, tmp_path):
    vbdrop("train", "plain", *tiny)
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "result.json").write_text("{")
    result = vbdrop("train", "plain", *tiny)
    assert result.code == 1
    assert "result.json is damaged" in result.err


def test_ctrl_c_stops_a_run_and_says_how_to_go_on(tmp_path):
    command = [
        sys.executable, "-m", "vbdrop", "train", "vbd-weights", "--model", "mlp", "--model-arg", "units=12",
        "--epochs", "100000", "--records", str(tmp_path),
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    deadline = time.monotonic() + 300
    while not any(path.stat().st_size for path in tmp_path.glob("*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Stopped. The same command resumes" in said
    assert "Traceback" not in said
