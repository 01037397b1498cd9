"""Where a run was made: versions, machine and times. Nothing in it identifies the run."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from vbdrop.kernels import in_use

PACKAGES = ("vbdrop", "torch", "numpy")


def environment(arithmetic: str = "kernels") -> dict[str, Any]:
    """Return the versions and the machine of this process.

    Args:
        arithmetic: The arithmetic of the run, one of :data:`vbdrop.experiments.config.ARITHMETICS`.

    Example:
        >>> sorted(environment())
        ['arithmetic', 'machine', 'threads', 'versions']
    """
    packages = {name: installed_version(name) for name in PACKAGES}
    return {
        "arithmetic": arithmetic,
        "versions": {
            "python": platform.python_version(),
            **packages,
            "commit": commit(),
            "kernels": in_use() if arithmetic == "kernels" else "none",
        },
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": processor(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "cores": os.cpu_count(),
        },
        "threads": torch.get_num_threads(),
    }


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the commit of the running source, followed by ``+`` if its files have changed since.

    ``"unknown"`` if the package does not run from its own git repository.

    Example:
        >>> commit() == "unknown" or len(commit().rstrip("+")) == 40
        True
    """
    package = Path(__file__).resolve().parents[1]
    commands = (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no", "--", "."))
    try:
        head, changed = (
            subprocess.run(
                ["git", "-C", str(package), *command], check=True, capture_output=True, text=True, timeout=30
            ).stdout.strip()
            for command in commands
        )
        tracked = subprocess.run(
            ["git", "-C", str(package), "ls-files", "--error-unmatch", "__init__.py"], capture_output=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return "unknown" if tracked.returncode else f"{head}{'+' if changed else ''}"


def now() -> str:
    """Return the time in UTC, to the second.

    Example:
        >>> now().endswith("+00:00")
        True
    """
    return datetime.now(UTC).isoformat(timespec="seconds")


def processor() -> str:
    """Return the processor's name, as far as the system reports it.

    Example:
        >>> isinstance(processor(), str)
        True
    """
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # there is no such file outside Linux
    return platform.processor() or platform.machine()


def installed_version(package: str) -> str:
    """Return the version of a package, or that it is not installed.

    Example:
        >>> installed_version("no-such-package")
        'not installed'
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
