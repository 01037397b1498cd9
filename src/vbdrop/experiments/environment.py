"""Where a run was made: versions, machine and times. Nothing in it identifies the run."""

import hashlib
import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from vbdrop.functional import native

PACKAGES = ("vbdrop", "torch", "numpy")


def environment() -> dict[str, Any]:
    """Return the versions and the machine of this process.

    Example:
        >>> sorted(environment())
        ['machine', 'threads', 'versions']
    """
    packages = {name: _version(name) for name in PACKAGES}
    return {
        "versions": {"python": platform.python_version(), **packages, "kernels": kernels()},
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": processor(),
            "cores": os.cpu_count(),
        },
        "threads": torch.get_num_threads(),
    }


def kernels() -> str:
    """Return which compiled kernels are in use, by a digest of their source; ``"none"`` where PyTorch does it all.

    Example:
        >>> kernels() == "none" or len(kernels()) == 12
        True
    """
    if native.library() is None:
        return "none"
    sources = b"".join(source.read_bytes() for source in (*native.SOURCES, *native.HEADERS))
    return hashlib.sha256(sources).hexdigest()[:12]


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


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
