"""``vbdrop demo``."""

import json
import re

import pytest
from tests.stress import only_in_stress

from vbdrop.compression import load

NUMBER = r"[\d.,]+"


@pytest.fixture
def results(tmp_path):
    def read():
        found = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("*/result.json")}
        return [next(result for name, result in found.items() if name.startswith(kind)) for kind in ("plain", "vbd")]

    return read


def rows(out):
    """The rows of the second table by their names: what was before and after."""
    table = out[out.index("The plain network") : out.index("asked for Target")]
    return {line[:24].strip(): line[24:] for line in table.splitlines() if line.strip()}


@only_in_stress
def test_everything_it_shows_is_what_this_run_measured(vbdrop, results, tmp_path, compiler, monkeypatch):
    result = vbdrop("demo", "--epochs", 2, "--records", tmp_path)
    assert result.code == 0, result.err
    plain, pruned = results()
    (folder,) = tmp_path.glob("vbd-weights-*")
    measured = json.loads((folder / "measured.json").read_text())
    ways = {row["name"]: row for row in measured["rows"]}
    shown = rows(result.out)
    assert re.findall(r"[\d.]+ %", shown["test error"]) == [f"{plain['error']:.2f} %", f"{measured['error']:.2f} %"]
    assert measured["error"] == pruned["error"]
    left = sum(layer["nonzero"] for layer in measured["layers"])
    assert re.findall(NUMBER, shown["weights"])[:2] == [f"{plain['weights']:,}", f"{left:,}"]
    sizes = [ways[name]["bytes"] for name in ("original, PyTorch", "small, PyTorch")]
    assert re.findall(NUMBER, shown["bytes of the file"])[:2] == [f"{size:,}" for size in sizes]
    assert f"{ways['small, C']['microseconds']['1']:.1f} µs" in shown["one digit, C"]
    assert f"{ways['original, ONNX Runtime']['microseconds']['1']:.1f} µs" in shown["one digit, ONNX Runtime"]

    assert re.search(r"error [\d.]+ %  zeros [\d.]+-[\d.]+-[\d.]+ %", result.err), "the zeros of each layer"
    for ending in ("safetensors", "onnx", "c", "h", "html"):
        assert str(tmp_path / f"lenet-300-100.{ending}") in result.out
        assert (tmp_path / f"lenet-300-100.{ending}").stat().st_size > 500
    assert (tmp_path / "lenet-300-100.safetensors").stat().st_size == sizes[1]
    assert load(tmp_path / "lenet-300-100.safetensors")
    targets = result.out[result.out.index("asked for Target(weights=50") :]
    assert "times fewer" in targets
    assert re.search(r"one digit, ONNX Runtime +[\d.]+ µs +[\d.]+ µs", targets[targets.index("Target(macs=5)") :])
    assert "Which layers paid" in (tmp_path / "lenet-5-target.html").read_text()
    assert "2 runs: vbd-weights, plain" in (tmp_path / "lenet-300-100.html").read_text()

    monkeypatch.setattr("vbdrop.exporting.c.find_compiler", lambda: None)
    again = vbdrop("demo", "--epochs", 2, "--records", tmp_path)
    assert again.code == 0
    assert again.err.count("is already trained") == 2, "a second time nothing is trained"
    assert "not measured" in rows(again.out)["one digit, C"]
    assert "there is no C compiler on the PATH" in rows(again.out)["one digit, C"]


@only_in_stress
def test_whole_neurons(vbdrop, tmp_path):
    result = vbdrop("demo", "--units", "--epochs", 1, "--records", tmp_path)
    assert result.code == 0
    assert (tmp_path / "lenet-300-100-units.html").exists()
    (config,) = (json.loads(path.read_text()) for path in tmp_path.glob("vbd-gates-*/config.json"))
    assert config["model"] == "lenet-300-100"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "vgg"), "--model must be one of lenet-300-100"),
        (("--data", "svhn"), "--data must be digits or mnist; got 'svhn'"),
        (("--epochs", 0), "`--epochs` must be an int >= 1"),
    ],
)
def test_mistakes(vbdrop, tmp_path, arguments, said):
    result = vbdrop("demo", *arguments, "--records", tmp_path)
    assert (result.code, said in result.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
