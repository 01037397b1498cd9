"""Files that are written whole or not at all."""

import errno
import glob
import os
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

STALE_SECONDS = 3600.0
"""A temporary file that has not been written to for so long is left over from a process that was killed."""


def write_atomically(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file so that, killed at any moment, there is the old one or the new one, and never a part.

    A symbolic link is followed. What is not a regular file, such as ``/dev/stdout``, is simply written to.

    Args:
        path: The file.
        content: All of it.
        mode: Its permissions; by default those of the file that it replaces, or what the umask gives a new one.

    Raises:
        FileNotFoundError: Its folder is not there.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "note"
        >>> write_atomically(path, b"whole")
        >>> path.read_bytes(), len(list(path.parent.iterdir()))
        (b'whole', 1)
    """
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))
    try:
        old = path.stat()
    except FileNotFoundError:
        old = None
    if old is not None and not stat.S_ISREG(old.st_mode):
        path.write_bytes(content)
        return
    _remove_stale(target)
    temporary = target.with_name(f"{_prefix(target)}{secrets.token_hex(6)}")
    descriptor, named = _open(temporary, 0o666 if old is None and mode is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            _take_over(file.fileno(), old, mode)
            file.flush()
            os.fsync(file.fileno())
            if not named:
                # `src_dir_fd` is not read, but only with it does Python follow the link in /proc to the file.
                os.link(f"/proc/self/fd/{file.fileno()}", temporary, src_dir_fd=file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _prefix(target: Path) -> str:
    return f".{target.name}-"


def _open(temporary: Path, mode: int) -> tuple[int, bool]:
    """Open a new file for writing, if possible without a name, so that nothing is left of it if the process is killed.

    Args:
        temporary: Its name, if it needs one.
        mode: Its permissions until they are set; private ones if what it replaces may be.

    Returns:
        Its descriptor, and whether it has its name already.
    """
    unnamed = getattr(os, "O_TMPFILE", None)
    if unnamed is not None and Path("/proc/self/fd").is_dir():
        with suppress(OSError):  # some file systems have no files without a name
            return os.open(temporary.parent, os.O_WRONLY | unnamed, mode), False
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), True


def _take_over(descriptor: int, old: os.stat_result | None, mode: int | None) -> None:
    """Give a new file the owner and the permissions of the old one."""
    if not hasattr(os, "fchmod"):
        return  # Windows has neither
    if old is not None:
        with suppress(OSError):  # only root may give a file away
            os.fchown(descriptor, old.st_uid, old.st_gid)
        mode = stat.S_IMODE(old.st_mode) if mode is None else mode
    if mode is not None:
        os.fchmod(descriptor, mode)


def _remove_stale(target: Path) -> None:
    for left in target.parent.glob(glob.escape(_prefix(target)) + "????????????"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                left.unlink()


def _sync_folder(folder: Path) -> None:
    """Have the new name on the disk too; not every system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
