"""Extract known files from a tar archive."""

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from vbdrop.data.errors import FetchError


def unpack(archive: Path, inside: str, files: Iterable[str], folder: Path) -> None:
    """Write the named files of the archive's folder ``inside`` to ``folder``, and nothing else.

    Raises:
        FetchError: The archive is damaged, or a file is not in it.
        OSError: A file cannot be written.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for name in files:
                member = tar.extractfile(f"{inside}/{name}")
                if member is None:
                    raise FetchError(f"{inside}/{name} in {archive.name} is not a file")
                with member, (folder / name).open("wb") as file:
                    shutil.copyfileobj(member, file)
    except KeyError as error:
        raise FetchError(f"{archive.name} has no {inside}/{name}") from error
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FetchError(f"{archive.name} is damaged: {error}") from error
