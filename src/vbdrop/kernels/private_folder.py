"""A folder for code that will be executed: only the user may be able to write to it."""

import atexit
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path

from vbdrop.cache import cache_dir

log = logging.getLogger(__name__)

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
ROOT = (0, 65534)
"""The user ids of root; inside a rootless container, the host's root appears as the second."""


def private_folder() -> Path:
    """A folder that only this user can write to: the cache, else one in the system's temporary folder.

    If a folder cannot be used, the reason is logged as a warning. The last resort is a new folder for this process
    alone, which is removed when the process ends.

    Raises:
        OSError: If no folder can be created.
    """
    for find in (_in_the_cache, _in_the_temporary_folder):
        try:
            folder = find()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
            log.warning("the compiled kernels cannot be kept: %s", error)
            continue
        reason = why_not_private(folder)
        if reason is None:
            return folder
        log.warning("the compiled kernels are not kept in %s: %s", folder, reason)
    folder = Path(tempfile.mkdtemp(prefix="vbdrop-kernels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _in_the_cache() -> Path:
    return cache_dir("kernels")


def _in_the_temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"vbdrop-kernels-{user()}"


def user() -> int:
    """The user id; -1 on a system without user ids."""
    return os.getuid() if hasattr(os, "getuid") else -1


def why_not_private(path: Path) -> str | None:
    """Why others could change a file or folder; None if they cannot.

    It must belong to this user, and nobody else may write to it. Each folder above it must belong to this user or to
    root, and may be writable by everyone only if it has the sticky bit, like ``/tmp``.

    Raises:
        OSError: If it cannot be inspected.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> why_not_private(folder)
        >>> folder.chmod(0o777)
        >>> why_not_private(folder)
        'others may write to it (mode 777); chmod go-w makes it private'
    """
    if user() == -1:
        return None
    real = path.resolve(strict=True)
    found = real.stat()
    if found.st_uid != user():
        return f"it belongs to another user (number {found.st_uid}; this is {user()})"
    if found.st_mode & OTHERS_MAY_WRITE:
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):o}); chmod go-w makes it private"
    for above in real.parents:
        found = above.stat()
        if found.st_uid not in (user(), *ROOT):
            return f"{above} belongs to another user (number {found.st_uid}; this is {user()})"
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return f"everybody may write to {above} (mode {stat.S_IMODE(found.st_mode):o})"
    return None
