"""``vbdrop rerun``."""

import json

import pytest
from tests.stress import only_in_stress


@pytest.fixture
def run(vbdrop, tiny, tmp_path):
    assert vbdrop("train", "vbd-weights", *tiny, "--set", "kl_weight=20").code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def test_a_run_made_again_is_the_same_and_a_changed_figure_is_found(vbdrop, run, tmp_path):
    again = ("rerun", run, "--records", tmp_path / "again")
    same = vbdrop(*again)
    assert same.code == 0
    assert "The same to the last bit." in same.out
    assert (tmp_path / "again" / run.name / "result.json").is_file()
    assert not (tmp_path / "again" / run.name / "weights.safetensors").exists()

    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"nll": result["nll"] + 1e-15}))
    changed = vbdrop(*again)
    assert changed.code == 1
    assert "has already ended" in changed.err
    assert "A field differs:\n  result.json: nll was" in changed.out
    found = vbdrop(*again, "--json").json
    assert not found["equal"]
    assert [each["field"] for each in found["differences"]] == ["nll"]


@pytest.mark.parametrize("fact", ["capability", "processor"])
def test_elsewhere_the_figures_must_lie_within_the_recorded_spread(vbdrop, run, tmp_path, fact):
    """Another commit or processor rounds otherwise: other bits are then no fault, other figures are."""
    again = ("rerun", run, "--records", tmp_path / "again")
    assert vbdrop(*again, "--json").json["verdict"] == "equal"
    path, result = run / "environment.json", json.loads((run / "result.json").read_text())
    environment = json.loads(path.read_text())
    environment["sessions"][-1]["machine"][fact] = "ABACUS"
    path.write_text(json.dumps(environment))
    (run / "result.json").write_text(json.dumps(result | {"nll": result["nll"] + 1e-15}))
    near = vbdrop(*again)
    assert near.code == 0
    assert "Different bits, made elsewhere; within the recorded spread." in near.out
    assert "of one recorded seed" in near.out
    assert f"Made elsewhere: environment.json: machine.{fact} was ABACUS" in near.out
    (run / "result.json").write_text(json.dumps(result | {"error": 1.0}))
    far = vbdrop(*again)
    assert far.code == 1
    assert "outside the recorded spread" in far.out
    assert vbdrop(*again, "--json").json["spreads"][0]["figure"] == "error"


@only_in_stress
def test_the_threads_are_those_of_the_record(vbdrop, run, tmp_path):
    import torch

    path = run / "environment.json"
    environment = json.loads(path.read_text())
    environment["sessions"][-1]["threads"] = 2
    path.write_text(json.dumps(environment))
    vbdrop("rerun", run, "--records", tmp_path / "two")
    assert torch.get_num_threads() == 2
    path.unlink()
    assert "does not say how many threads" in vbdrop("rerun", run, "--records", tmp_path / "one").err
    assert torch.get_num_threads() == 1


def test_mistakes(vbdrop, run, tmp_path):
    nowhere = vbdrop("rerun", tmp_path)
    assert nowhere.code == 2
    assert "is not a finished run" in nowhere.err
    assert "must not be the folder" in vbdrop("rerun", run, "--records", run.parent).err


def test_a_number_of_threads_is_at_least_one(vbdrop, tmp_path):
    result = vbdrop("rerun", tmp_path, "--threads", "0")
    assert (result.code, "greater than or equal to 1" in result.err) == (2, True)
