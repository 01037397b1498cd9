"""The small network of a run, made, written and measured."""

import json

import pytest
import torch

import vbdrop.exporting.onnx
from vbdrop.cli.small_network import exported, look_into, measured, smaller
from vbdrop.compression import load
from vbdrop.experiments import Record
from vbdrop.experiments.inputs import examples


@pytest.fixture
def record(vbdrop, tiny, tmp_path):
    assert vbdrop("train", "vbd-weights", *tiny, "--set", "kl_weight=20").code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    return Record(folder)


def test_a_saved_network_loads_without_a_model_and_has_the_same_outputs(record, tmp_path):
    small = smaller(record)
    assert small.error == record.result["error"]
    small.network.save(tmp_path / "small.safetensors")
    inputs = examples(record.config).test.inputs[:20]
    again = load(tmp_path / "small.safetensors")
    assert torch.equal(again(inputs), small.network.model(inputs))


def test_what_is_measured_is_kept_with_the_run(record, tmp_path, monkeypatch):
    monkeypatch.setattr(vbdrop.exporting.onnx, "PACKAGES", ("no_such_package",))
    small = smaller(record)
    with pytest.raises(ImportError, match="no_such_package"):
        exported(small, [tmp_path / "small.onnx"])
    exports = exported(small, [tmp_path / "small.onnx", tmp_path / "small.pt2"], skip_missing=True)
    assert [file.path.name for file in exports.written] == ["small.pt2"]
    assert "pip install" in exports.missing["small, ONNX Runtime"]
    found = measured(record, small, exports)
    assert json.loads((record.folder / "measured.json").read_text()) == found
    assert [row["name"] for row in found["rows"]] == ["original, PyTorch", "small, PyTorch", "small, torch.export"]
    assert found["missing"] == exports.missing


def test_details_that_are_missing_are_made_from_the_weights(record):
    path = record.folder / "details.json"
    before = path.read_bytes()
    path.unlink()
    look_into(record)
    assert path.read_bytes() == before
    path.write_text("kept")
    look_into(record)
    assert path.read_text() == "kept"
