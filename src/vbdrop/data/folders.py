"""Where data sets are looked for on this computer."""

import os
from collections.abc import Iterable
from pathlib import Path

from vbdrop.cache import cache_dir
from vbdrop.data.errors import DataError
from vbdrop.data.spec import FileLayout, Spec

SYSTEM = Path("/usr/share/datasets")
"""Where Debian's ``dataset-*`` packages put their files."""


def search_path(data_dir: Path | None = None) -> list[Path]:
    """Return the folders to look in: only ``data_dir``, or ``$VBDROP_DATA``, the cache and the system's folder.

    Raises:
        DataError: ``data_dir`` or ``$VBDROP_DATA`` is not a folder.

    Example:
        >>> [str(folder) for folder in search_path(Path("."))]
        ['.']
    """
    if data_dir is not None:
        return [_existing(data_dir, "the data folder")]
    chosen = os.environ.get("VBDROP_DATA")
    first = [_existing(Path(chosen).expanduser(), "the folder in VBDROP_DATA")] if chosen else []
    return [*first, cache_dir(), SYSTEM]


def find(spec: Spec, roots: Iterable[Path]) -> tuple[Path, FileLayout] | None:
    """Return the first folder that holds files of a set, and their layout; None if there is none.

    Raises:
        DataError: A folder cannot be read.
    """
    for root in roots:
        try:
            for layout in spec.layouts:
                if folder := layout.found_in(root):
                    return folder, layout
        except OSError as error:
            raise DataError(f"cannot look into {root}: {error}") from error
    return None


def _existing(folder: Path, what: str) -> Path:
    if not folder.is_dir():
        raise DataError(f"{what} must be an existing folder; got {folder}")
    return folder
