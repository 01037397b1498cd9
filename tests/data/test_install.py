import errno
import os
import resource
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from vbdrop.data import DataError
from vbdrop.data.install import locked, publish, staged


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_finished_folder_is_moved_and_nothing_else_stays(tmp_path):
    root = tmp_path / "new" / "cache"
    with locked(root, "mnist"), staged(root, "mnist") as stage:
        (stage / "files").mkdir()
        (stage / "files" / "a").touch()
        (stage / "rest").touch()
        publish(stage / "files", root / "MNIST" / "raw")
    assert everything(root) == ["MNIST", "MNIST/raw", "MNIST/raw/a"]


@pytest.mark.parametrize("error", [DataError("no"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(tmp_path, error):
    root = tmp_path / "cache"

    def fail(stage):
        (stage / "a").touch()
        raise error

    with pytest.raises(type(error)), locked(root, "mnist"), staged(root, "mnist") as stage:
        fail(stage)
    assert everything(tmp_path) == []


def test_a_folder_that_was_there_before_stays(tmp_path):
    root = tmp_path / "cache"
    root.mkdir()
    with pytest.raises(DataError), locked(root, "mnist"), staged(root, "mnist"):
        raise DataError("no")
    assert everything(tmp_path) == ["cache"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".mnist-left").mkdir()
    (tmp_path / ".mnist-left" / "half").touch()
    (tmp_path / ".svhn-other").mkdir()
    with locked(tmp_path, "mnist"), staged(tmp_path, "mnist"):
        pass
    assert everything(tmp_path) == [".svhn-other"]


def test_only_one_at_a_time(tmp_path):
    inside, most = [], []

    def work():
        with locked(tmp_path, "mnist"):
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.02)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5


def test_another_set_need_not_wait(tmp_path):
    with locked(tmp_path, "mnist"), locked(tmp_path, "svhn"):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".mnist.lock", ".svhn.lock"]


def test_something_in_the_way_is_not_overwritten(tmp_path):
    target = tmp_path / "MNIST" / "raw"
    target.mkdir(parents=True)
    (target / "notes").write_text("mine")
    (tmp_path / "new").mkdir()
    with pytest.raises(DataError, match=r"MNIST/raw is in the way: move it elsewhere"):
        publish(tmp_path / "new", target)
    assert (target / "notes").read_text() == "mine"


@contextmanager
def files_at_most(size: int):
    """The system refuses to write more to a file, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    root = tmp_path / "cache"
    with (
        files_at_most(1_000),
        pytest.raises(DataError, match=r"cannot store mnist in .*cache: the disk is full \(File too large\)"),
        locked(root, "mnist"),
        staged(root, "mnist") as stage,
    ):
        (stage / "a").write_bytes(bytes(2_000))
    assert everything(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_the_systems_words_for_a_full_disk_are_understood(tmp_path, number):
    with pytest.raises(DataError, match="the disk is full"), locked(tmp_path, "mnist"):
        raise OSError(number, os.strerror(number))


@contextmanager
def without_privileges():
    """The administrator may write everywhere: be nobody for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("below", ["", "cache"])
def test_a_folder_that_cannot_be_written_to_is_said(below):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        with (
            without_privileges(),
            pytest.raises(DataError, match=r"cannot store mnist in .*: the folder cannot be written to \(Permission"),
            locked(folder / below, "mnist"),
        ):
            pass
        folder.chmod(0o755)
        assert everything(folder) == []


def test_a_file_in_place_of_the_folder_is_said(tmp_path):
    (tmp_path / "cache").touch()
    with pytest.raises(DataError, match=r"cannot store mnist in .*cache: "), locked(tmp_path / "cache", "mnist"):
        pass
