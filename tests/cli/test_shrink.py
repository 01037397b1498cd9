"""``vbdrop shrink``: a module of the user's own."""

import json
import sys

import pytest
import torch
from tests.stress import only_in_stress
from torch import nn

import vbdrop as library
from vbdrop.cli.shrink import folder_of
from vbdrop.targets.run_file import RunFile

MODULE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))

def data():
    torch.manual_seed(0)
    x = torch.randn(100, 6)
    return x, (x[:, 0] > 0).long()

def loaders():
    made = TensorDataset(*data())
    return DataLoader(made, batch_size=20, shuffle=True), DataLoader(made, batch_size=50)

def empty():
    return DataLoader([]), None

def three():
    return 1, [2], 3

def nothing():
    return None

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("own_module", None)


ARGUMENTS = ("own_module:make_model", "--target", "macs=3", "--epochs", "4", "--out", "small", "--lr", "0.01")


def test_a_model_of_ones_own_becomes_small_files(vbdrop, own):
    result = vbdrop("shrink", *ARGUMENTS, "--data", "own_module:loaders", "--loss", "own_module:loss")
    assert result.code == 0, result.err
    assert "macs before" in result.out
    assert all(f"small/{name}" in result.out for name in ("small.safetensors", "small.onnx", "small.c"))
    assert {"small.safetensors", "small.onnx", "small.c", "small.h", "result.json", "report.html"} <= {
        path.name for path in (own / "small").iterdir()
    }
    figures = json.loads((own / "small/result.json").read_text())
    assert all((own / "small" / one["file"]).is_file() for one in (*figures["kept"], figures))
    assert figures["size"] <= figures["limit"] == pytest.approx(160 / 3)
    fresh = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))
    assert library.load(own / "small/small.safetensors", model=fresh)(torch.zeros(1, 6)).shape == (1, 2)


def test_data_without_validation_and_json(vbdrop, own):
    found = vbdrop("shrink", *ARGUMENTS, "--data", "own_module:data", "--json").json
    assert found["error"] is None
    assert len(found["curve"]) == 4
    assert len(found["files"]) == 5 + len(found["kept"])


@only_in_stress
def test_several_targets_get_a_folder_each(vbdrop, own):
    found = vbdrop("shrink", *ARGUMENTS, "--target", "weights=2", "--data", "own_module:data", "--json").json
    assert [each["limit"] for each in found] == pytest.approx([160 / 3, 160 / 2])
    for name in ("macs-3", "weights-2"):
        assert (own / "small" / name / "result.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "own_module:empty"), "at least one batch"),
        (("--data", "own_module:three"), "must return (train, valid), or train alone; it returned a tuple of 3"),
        (("--data", "own_module:nothing"), "it returned None"),
        (("--data", "own_module:none"), "has no function 'none'"),
        (("--data", "no_module:loaders"), "there is no module 'no_module'"),
        (("--data", "own_module"), "must look like module:function"),
        (("--data", "own_module:data", "--target", "speed=3"), "a target must look like 'macs=5'"),
        (("--data", "own_module:data", "--target", "max_bytes=4 B"), "cannot be reached"),
    ],
)
def test_mistakes_are_said_before_training(vbdrop, own, arguments, message):
    others = ARGUMENTS[:1] + ARGUMENTS[3:] if "--target" in arguments else ARGUMENTS
    result = vbdrop("shrink", *others, *arguments)
    assert result.code == 2
    assert message in " ".join(result.err.replace("│", " ").split())


def test_a_folder_of_another_run_is_told_what_to_do(vbdrop, own):
    (own / "small").mkdir()
    RunFile(own / "small/run.pt", {"another": "run"}).save({})
    result = vbdrop("shrink", *ARGUMENTS, "--data", "own_module:data")
    assert result.code == 2
    said = " ".join(result.err.replace("│", " ").split())
    assert "small/run.pt is the checkpoint of another run: choose another --out, or delete the file." in said


def test_what_is_no_model(vbdrop, own):
    result = vbdrop("shrink", "own_module:data", *ARGUMENTS[1:], "--data", "own_module:data")
    assert "must return a torch.nn.Module; it returned tuple" in " ".join(result.err.split())


def test_targets_that_differ_have_folders_that_differ():
    targets = [f"max_latency=2 {unit}" for unit in ("s", "ms", "µs")]
    assert len({folder_of(target) for target in targets}) == 3
