"""``vbdrop compress``."""

import json

import pytest
from safetensors import safe_open


@pytest.fixture
def trained(vbdrop, tiny, tmp_path):
    def run(method, *others):
        assert vbdrop("train", method, *tiny, *others).code == 0
        (folder,) = (tmp_path / "runs").glob(f"{method}-*")
        return folder

    return run


def test_a_run_becomes_a_smaller_network_with_the_same_error(vbdrop, trained, tmp_path):
    folder = trained("vbd-weights", "--set", "kl_weight=20")
    error = json.loads((folder / "result.json").read_text())["error"]
    file = tmp_path / "small.safetensors"
    found = vbdrop("compress", folder, "--save", file, "--json").json
    assert found["error"] == {"before": error, "after": error}
    assert found["after"]["nonzeros"] < found["before"]["weights"]
    assert found["files"] == [f"{file}, {file.stat().st_size:,} bytes"]
    with safe_open(file, "pt") as content:
        assert content.keys()
    harder = vbdrop("compress", folder, "--threshold", "0").out
    assert "times fewer" in harder
    assert "hidden.0" in harder


def test_what_is_measured_is_printed_and_kept_for_the_report(vbdrop, trained, tmp_path):
    folder = trained("vbd-weights", "--set", "kl_weight=20")
    result = vbdrop("compress", folder, "--measure", "--export", tmp_path / "small.pt2")
    assert result.code == 0
    found = json.loads((folder / "measured.json").read_text())
    for row in found["rows"]:
        (line,) = (line for line in result.out.splitlines() if line.strip().startswith(row["name"]))
        assert f"{row['bytes']:,}" in line
        assert f"{row['microseconds']['64']:,.1f} µs" in line
    assert f"vbdrop report {folder}" in result.out


def test_mistakes(vbdrop, trained, tmp_path):
    assert "is no run" in vbdrop("compress", tmp_path / "none").err
    folder = trained("plain")
    result = vbdrop("compress", folder, "--threshold", "1")
    assert (result.code, "plain has none" in result.err) == (2, True)
    (folder / "weights.safetensors").write_bytes(b"no tensors")
    assert "weights.safetensors is damaged" in vbdrop("compress", folder).err
    (folder / "weights.safetensors").unlink()
    assert "was made without keeping them" in vbdrop("compress", folder).err
    (folder / "result.json").unlink()
    assert "has not ended" in vbdrop("compress", folder).err
