import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.stress import count
from torch import nn

import vbdrop
from vbdrop.compression import compress
from vbdrop.exporting import ExportError, export
from vbdrop.exporting import table as formats
from vbdrop.exporting.program import load_program
from vbdrop.layers import Variational


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2))


def test_c_is_written_checked_and_reported(tmp_path, compiler):
    exported = export(network(), tmp_path / "net.c", torch.randn(5, 4))
    assert [path.name for path in exported.paths] == ["net.c", "net.h"]
    assert exported.path == tmp_path / "net.c"
    assert sorted(tmp_path.iterdir()) == sorted(exported.paths)
    assert exported.bytes == sum(path.stat().st_size for path in exported.paths)
    assert exported.verified
    assert exported.difference < 1e-6
    assert "net.c and net.h" in str(exported)
    assert "verified, largest difference" in str(exported)


def test_what_compress_gives_brings_its_inputs(tmp_path, compiler):
    model = network()
    with torch.no_grad():
        model[0].weight[:4] = 0
    small = compress(model, torch.randn(5, 4))
    assert export(small, str(tmp_path / "net.c")).verified


def test_the_model_is_not_changed(tmp_path):
    model = network()
    model(torch.randn(9, 4))
    before = copy.deepcopy(model.state_dict())
    export(model, tmp_path / "net.pt2", torch.randn(3, 4))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_converted_model_is_exported_as_a_plain_one(tmp_path):
    model = network()
    plain = set(model.state_dict())
    vbdrop.convert_(model, vbdrop.Weights())
    with torch.no_grad():
        model[0].log_sigma2[:3] = 20.0
    exported = export(model, tmp_path / "net.pt2", torch.randn(3, 4))
    assert exported.verified
    assert set(load_program(exported.path).state_dict()) <= plain
    assert isinstance(model[0], Variational)
    inputs = torch.randn(2, 4)
    torch.testing.assert_close(load_program(exported.path)(inputs), model.eval()(inputs))


def wrong_weights(write):
    def write_wrongly(model, path, inputs):
        wrong = copy.deepcopy(model)
        with torch.no_grad():
            wrong[0].weight[0, 0] += 0.5
        return write(wrong, path, inputs)

    return write_wrongly


@pytest.mark.parametrize("ending", [".c", ".pt2"])
def test_a_disagreement_is_an_error_and_leaves_everything_as_it_was(tmp_path, compiler, monkeypatch, ending):
    true = formats.FORMATS[ending]
    wrong = formats.Format(wrong_weights(true.write), true.run, true.summary)
    monkeypatch.setitem(formats.FORMATS, ending, wrong)
    path = tmp_path / f"net{ending}"
    path.write_text("an older file")
    with pytest.raises(ExportError, match="does not agree with the model"):
        export(network(), path, torch.randn(3, 4))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "an older file"


def test_without_a_compiler_the_c_is_written_and_reported_as_not_verified(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    exported = export(network(), tmp_path / "net.c", torch.randn(3, 4))
    assert not exported.verified
    assert exported.difference is None
    assert "NOT verified: there is no C compiler" in str(exported)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.c", "net.h"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((network(), "net.tflite", torch.ones(1, 4)), ValueError, r"`path` must end in one of \.onnx, \.pt2, \.c"),
        ((network(), "nowhere/net.c", torch.ones(1, 4)), ValueError, "`path` must lie in a folder that exists"),
        ((network(), "net.c"), ValueError, "`example_inputs` must be a tensor or a tuple of tensors; got None"),
        ((network(), "net.c", "x"), ValueError, "`example_inputs` must be a tensor or a tuple"),
        ((network(), "net.c", torch.ones(0, 4)), ValueError, "at least one sample"),
        ((network(), "net.c", torch.ones(1, 5)), ValueError, r"`example_inputs` of the shape \(1, 5\) do not fit"),
        ((network(), "net.c", np.ones((2, 4))), ValueError, r"`example_inputs` must be a tensor .* got array"),
        ((network(), "net.c", ()), ValueError, r"`example_inputs` must be a tensor or a tuple of tensors; got \(\)"),
        ((nn.Identity(), "net.c", torch.tensor(1.0)), ExportError, "`example_inputs` with a batch axis"),
        ((network(), 5, torch.ones(1, 4)), TypeError, "`path` must be a str or a Path; got 5"),
        (("net", "net.c", torch.ones(1, 4)), TypeError, "`small` must be a torch.nn.Module or from vbdrop.compress"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, monkeypatch, arguments, error, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        export(*arguments)
    assert list(tmp_path.iterdir()) == []


FULL_DISK = """
import resource, sys, torch
from vbdrop import export
inputs = torch.randn(2, 300)
model = torch.nn.Linear(300, 300)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    export(model, sys.argv[1], inputs)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.stress
@pytest.mark.parametrize("ending", [".pt2", *formats.FORMATS][: count(1, 9)])
def test_a_disk_that_is_full_is_an_error_and_leaves_the_old_file(tmp_path, compiler, ending):
    """A limit on the size of a file stands for the end of the disk: the system refuses to write beyond it."""
    path = tmp_path / f"net{ending}"
    path.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path],
        env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "File too large\n"), done.stderr
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir() if file.is_file() or "vbdrop" in file.name] == [path.name]


def test_a_file_that_is_there_keeps_its_permissions_and_a_link_is_followed(tmp_path):
    (tmp_path / "real.pt2").write_text("old")
    (tmp_path / "real.pt2").chmod(0o600)
    (tmp_path / "net.pt2").symlink_to("real.pt2")
    exported = export(nn.Linear(4, 2), tmp_path / "net.pt2", torch.randn(2, 4))
    assert exported.path.is_symlink()
    assert (tmp_path / "real.pt2").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "real.pt2").stat().st_size == exported.bytes


@pytest.mark.parametrize("ending", [".c", ".pt2", ".onnx"])
def test_a_model_may_write_to_its_input_but_not_to_the_example(tmp_path, compiler, ending):
    model = nn.Sequential(nn.LeakyReLU(0.1, inplace=True), nn.Linear(4, 2))
    inputs = torch.randn(3, 4)
    before = inputs.clone()
    assert export(model, tmp_path / f"net{ending}", inputs).verified
    assert torch.equal(inputs, before)


@pytest.mark.parametrize("ending", [".c", ".h"])
@pytest.mark.parametrize("is_link", [False, True], ids=["folder", "link to nowhere"])
def test_a_source_or_header_that_cannot_be_written_is_refused_before_any_work(tmp_path, ending, is_link):
    occupied, other = tmp_path / f"net{ending}", tmp_path / f"net{'.h' if ending == '.c' else '.c'}"
    if is_link:
        occupied.symlink_to(tmp_path / "nowhere" / "net")
    else:
        occupied.mkdir()
    other.write_text("old")
    with pytest.raises(ValueError, match=rf"`path` must .*net\{ending}"):
        export(network(), tmp_path / "net.c", torch.ones(1, 5))  # which does not fit the model
    assert other.read_text() == "old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("old", [None, "old"])
def test_a_source_that_cannot_be_written_leaves_the_old_header(tmp_path, old):
    header = tmp_path / "net.h"
    if old is not None:
        header.write_text(old)
    (tmp_path / "net.c").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        export(network(), tmp_path / "net.c", torch.randn(2, 4))
    assert (header.read_text() if header.exists() else None) == old
