"""The checkpoint of a run."""

import pytest
import torch

from vbdrop.targets import run_file
from vbdrop.targets.run_file import RunFile


def test_it_comes_back_as_it_was(tmp_path):
    file = RunFile(tmp_path / "run.pt", {"seed": 1})
    assert file.load() is None
    file.save({"weights": torch.arange(3), "curve": [{"size": 1.5}], "none": None})
    state = RunFile(tmp_path / "run.pt", {"seed": 1}).load()
    assert torch.equal(state.pop("weights"), torch.arange(3))
    assert state == {"curve": [{"size": 1.5}], "none": None}


def test_another_run_does_not_go_on_from_it(tmp_path):
    RunFile(tmp_path / "run.pt", {"seed": 1}).save({})
    with pytest.raises(ValueError, match="of another run"):
        RunFile(tmp_path / "run.pt", {"seed": 2}).load()


@pytest.mark.parametrize("keep", [0, 10, -1])
def test_a_damaged_file_says_so(tmp_path, keep):
    file = RunFile(tmp_path / "run.pt", {})
    file.save({"done": 1})
    content = (tmp_path / "run.pt").read_bytes()
    (tmp_path / "run.pt").write_bytes(content[:keep])
    with pytest.raises(ValueError, match="is damaged"):
        file.load()


def test_its_folder_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="a folder that exists"):
        RunFile(tmp_path / "none" / "run.pt", {})


def test_a_run_that_goes_on_without_the_kernels_that_it_began_with_says_so(tmp_path, monkeypatch):
    file = RunFile(tmp_path / "run.pt", {})
    monkeypatch.setattr(run_file, "in_use", lambda: "0123456789ab")
    file.save({"done": 4})
    assert file.load() == {"done": 4}
    monkeypatch.setattr(run_file, "in_use", lambda: "none")
    with pytest.warns(UserWarning, match="kernels 0123456789ab up to epoch 4 and resumes without compiled kernels"):
        assert file.load() == {"done": 4}
