"""Where a run was made: versions, machine and times. Nothing in it identifies the run."""

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from vbdrop.kernels import in_use

PACKAGES = ("vbdrop", "torch", "numpy")


def environment() -> dict[str, Any]:
    """Return the versions and the machine of this process.

    Example:
        >>> sorted(environment())
        ['machine', 'threads', 'versions']
    """
    packages = {name: installed_version(name) for name in PACKAGES}
    return {
        "versions": {"python": platform.python_version(), **packages, "kernels": in_use()},
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": processor(),
            "cores": os.cpu_count(),
        },
        "threads": torch.get_num_threads(),
    }


def now() -> str:
    """Return the time in UTC, to the second.

    Example:
        >>> now().endswith("+00:00")
        True
    """
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def processor() -> str:
    """Return the processor's name, as far as the system tells it.

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
