"""Files that are written whole or not at all."""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that, killed at any moment, there is the old one or the new one, and never a part.

    Everybody may read it, whatever the file that it is written to first may.

    Raises:
        FileNotFoundError: Its folder is not there.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "note"
        >>> write_atomically(path, b"whole")
        >>> path.read_bytes(), len(list(path.parent.iterdir()))
        (b'whole', 1)
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise
