"""Install a fetched data set: all of it or nothing, one process at a time."""

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from vbdrop.data.errors import DataError


@contextmanager
def locked(root: Path, name: str) -> Iterator[None]:
    """Create ``root`` if necessary, and wait until no other process is installing the same set in it.

    If something cannot be stored inside the block, a :class:`DataError` says why.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with locked(folder / "cache", "mnist"), staged(folder / "cache", "mnist") as stage:
        ...     (stage / "files").mkdir()
        ...     _ = (stage / "files" / "labels").write_bytes(bytes([7]))
        ...     publish(stage / "files", folder / "cache" / "MNIST" / "raw")
        >>> [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
        ['cache/MNIST/raw/labels']
    """
    created = not root.exists()
    lock_file = root / f".{name}.lock"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_file):
            try:
                yield
            finally:
                with suppress(OSError):  # some systems do not delete an open file
                    lock_file.unlink()
    except OSError as error:
        raise DataError(f"cannot store {name} in {root}: {_reason(error)}") from error
    finally:
        if created:
            with suppress(OSError):  # it is not empty: something was installed
                root.rmdir()


@contextmanager
def staged(root: Path, name: str) -> Iterator[Path]:
    """Yield an empty folder on the disk of ``root``; it is deleted at the end, with whatever is still in it.

    Only for the holder of the lock: folders left by a killed process are removed first.
    """
    prefix = f".{name}-"
    for left in root.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    stage = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def publish(folder: Path, target: Path) -> None:
    """Move a finished folder into place, in one step.

    Raises:
        DataError: Something else is already there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.rename(target)
    except OSError as error:
        if target.exists():
            raise DataError(f"{target} is in the way: move it elsewhere and try again") from error
        raise


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full ({error.strerror})"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"the folder cannot be written to ({error.strerror})"
    return str(error)
