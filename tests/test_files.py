"""Files that are written whole or not at all."""

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from vbdrop.files import STALE_SECONDS, write_atomically


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


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_has_the_permissions_that_the_umask_gives(tmp_path, umask, expected):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == expected


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o755])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, kept):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(kept)
    write_atomically(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", kept)
    write_atomically(path, b"newer", mode=0o400)
    assert mode(path) == 0o400


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed_and_stays(tmp_path, there):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "real", tmp_path / "link"
    if there:
        target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert (target.read_bytes(), link.read_bytes()) == (b"new", b"new")
    assert [file.name for file in target.parent.iterdir()] == ["real"]


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="symbolic links"):
        write_atomically(tmp_path / "a", b"x")
    assert (tmp_path / "a").is_symlink()


def test_what_is_not_a_regular_file_is_written_to_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


KILLED = """
import os, sys
from pathlib import Path
from vbdrop.files import STALE_SECONDS, write_atomically
setattr(os, "fsync", lambda descriptor: os.kill(os.getpid(), 9))
if sys.argv[2] == "named":
    del os.O_TMPFILE
write_atomically(Path(sys.argv[1]), b"new")
"""


def killed(path, how):
    done = subprocess.run([sys.executable, "-c", KILLED, path, how], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


def test_a_process_that_is_killed_leaves_nothing(tmp_path):
    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        pytest.skip("NOT TESTED: this file system has no files without a name")
    killed(path, "unnamed")
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_what_a_killed_process_left_is_removed_later_and_a_file_in_progress_is_not(tmp_path):
    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    killed(path, "named")
    (left,) = tmp_path.glob(".*")
    write_atomically(path, b"new")
    assert left.exists(), "another process may be writing to it"
    long_ago = time.time() - 2 * STALE_SECONDS
    os.utime(left, (long_ago, long_ago))
    write_atomically(path, b"newer")
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_it_works_where_every_file_has_a_name(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    write_atomically(tmp_path / "a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_what_replaces_a_private_file_is_private_from_the_start(tmp_path, monkeypatch):
    """Where it has a name while it is written, others could read it."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    (tmp_path / "secret").write_bytes(b"old")
    (tmp_path / "secret").chmod(0o600)
    modes, opened = [], os.open

    def watched(path, *args, **kwargs):
        descriptor = opened(path, *args, **kwargs)
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", watched)
    write_atomically(tmp_path / "secret", b"new")
    assert modes[0] == 0o600
    write_atomically(tmp_path / "given", b"new", mode=0o640)
    assert stat.S_IMODE((tmp_path / "given").stat().st_mode) == 0o640


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no such folder: '.*missing'"):
        write_atomically(tmp_path / "missing" / "a", b"x")
