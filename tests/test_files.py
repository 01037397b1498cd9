"""Files that are written whole or not at all."""

import os

import pytest

from vbdrop.files import write_atomically


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    write_atomically(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_a_file_can_be_read_by_everybody(tmp_path):
    write_atomically(tmp_path / "a", b"x")
    assert oct((tmp_path / "a").stat().st_mode)[-3:] == "644"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no such folder: '.*missing'"):
        write_atomically(tmp_path / "missing" / "a", b"x")
