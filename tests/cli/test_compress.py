"""``vbdrop compress``."""

import json

import pytest
from safetensors import safe_open

from vbdrop.exporting import FORMATS, ExportError, Format


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


def test_an_error_on_held_out_data_is_not_called_a_test_error(vbdrop, trained):
    shown = vbdrop("compress", trained("vbd-weights", "--valid", "50")).out
    assert "validation error" in shown
    assert "test error" not in shown


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


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        ("--export", "b.xyz", "`path` must end in one of .onnx, .pt2, .c; got "),
        ("--export", "nowhere/b.c", "no folder "),
        ("--save", "nowhere/b.safetensors", "no folder "),
        ("--save", "folder", "is a folder"),
        ("--export", "folder.c", "is a folder"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_any_work(vbdrop, tmp_path, option, name, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.c").mkdir()
    before = sorted(tmp_path.iterdir())
    # there is no such run: were it read first, that would be the mistake
    others = ("--save", tmp_path / "a") if option == "--export" else ("--export", tmp_path / "a.pt2")
    result = vbdrop("compress", tmp_path / "no-run", *others, option, tmp_path / name)
    assert result.code == 2
    assert f"{option}: " in result.err
    assert said in result.err
    assert str(tmp_path / name if said != "no folder " else tmp_path / "nowhere") in result.err
    assert sorted(tmp_path.iterdir()) == before


def test_a_package_that_is_not_installed_is_told_before_any_work(vbdrop, tmp_path, monkeypatch):
    monkeypatch.setattr("vbdrop.exporting.onnx.find_spec", lambda name: None)
    result = vbdrop("compress", tmp_path / "no-run", "--save", tmp_path / "a", "--export", tmp_path / "b.onnx")
    assert (result.code, "pip install" in result.err) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_saved_of_a_network_that_cannot_be_exported(vbdrop, trained, tmp_path, monkeypatch):
    def refuse(model, path, inputs):
        raise ExportError("no such operation")

    folder = trained("plain")
    monkeypatch.setitem(FORMATS, ".c", Format(refuse, lambda path: None, "a format that refuses"))
    result = vbdrop("compress", folder, "--save", tmp_path / "a", "--export", tmp_path / "b.c")
    assert (result.code, "no such operation" in result.err) == (1, True)
    assert list(tmp_path.iterdir()) == [tmp_path / "runs"]


def test_a_target_trains_the_network_of_a_run_until_it_is_that_small(vbdrop, trained, tmp_path):
    folder = trained("plain")
    page = tmp_path / "walk.html"
    result = vbdrop("compress", folder, "--target", "macs=4", "--epochs", "2", "--page", page, "--json")
    assert result.code == 0, result.err
    found = result.json
    assert 0.9 * found["before"]["macs"] / 4 <= found["after"]["macs"] <= found["before"]["macs"] / 4
    assert "Target(macs=4" in page.read_text()
    for arguments, said in (
        (("--target", "macs=4"), "--target and --epochs belong together"),
        (("--target", "macs=4", "--epochs", "2", "--threshold", "1"), "not both"),
        (("--page", page), "--page is for --target"),
        (("--target", "macs=x", "--epochs", "2"), "must be a number"),
        (("--target", "max_macs=1", "--epochs", "2"), "cannot be reached"),
    ):
        wrong = vbdrop("compress", folder, *arguments)
        assert (wrong.code, said in " ".join(wrong.err.split())) == (2, True), wrong.err
