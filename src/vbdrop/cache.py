"""The folder for files that vbdrop can rebuild or download again."""

import os
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    """Return the cache folder, ``$XDG_CACHE_HOME/vbdrop`` or ``~/.cache/vbdrop``, or a folder in it; it may not exist.

    As the XDG specification requires, a relative ``XDG_CACHE_HOME`` is ignored.

    Args:
        parts: The path of a folder inside the cache, one name each.

    Raises:
        RuntimeError: If the variable is not set and there is no home folder.

    Example:
        >>> cache_dir("kernels").parts[-2:]
        ('vbdrop', 'kernels')
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache").joinpath("vbdrop", *parts)
