"""The C compiler of this machine."""

import os
import shutil
import subprocess

SEARCHED = ("cc", "gcc", "clang")


def find_compiler() -> str | None:
    """The C compiler: the one in the environment variable CC, or the first of cc, gcc and clang on the PATH.

    Example:
        >>> path = find_compiler()
        >>> path is None or os.path.isabs(path)
        True
    """
    for name in (os.environ.get("CC"), *SEARCHED):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


def compiler_version(compiler: str) -> str:
    """The first line of a compiler's version; ``"unknown"`` if it does not report one.

    Example:
        >>> compiler_version("no-such-compiler")
        'unknown'
    """
    try:
        said = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    lines = said.decode(errors="replace").splitlines()
    return lines[0].strip() if lines else "unknown"
