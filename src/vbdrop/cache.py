"""The folder in which vbdrop keeps what it can make or fetch again."""

import os
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    """Return the cache folder, ``$XDG_CACHE_HOME/vbdrop`` or ``~/.cache/vbdrop``, or a folder in it; it may not exist.

    As the XDG specification asks, a relative ``XDG_CACHE_HOME`` is ignored.

    Args:
        parts: The names of a folder in it.

    Raises:
        RuntimeError: There is neither a variable nor a home folder.

    Example:
        >>> cache_dir("kernels").parts[-2:]
        ('vbdrop', 'kernels')
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache").joinpath("vbdrop", *parts)
