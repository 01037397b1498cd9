"""The kernels that this process uses: found or built at first use, and logged once."""

import ctypes
import logging
import os
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vbdrop.kernels.building import BuildError, build, source_digest
from vbdrop.kernels.compiler import SEARCHED, find_compiler
from vbdrop.kernels.signatures import load

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels, or the reason why the PyTorch formulas are used instead.

    Attributes:
        library: The loaded library; None if it is not in use.
        path: Its file, or None.
        reason: Why it is not in use; empty if it is.
    """

    library: ctypes.CDLL | None
    path: Path | None
    reason: str = ""


@lru_cache(maxsize=1)
def kernels() -> Kernels:
    """Find or build the kernels on the first call.

    Example:
        >>> found = kernels()
        >>> (found.library is None) == bool(found.reason)
        True
    """
    found = _found()
    if found.library is not None:
        log.info("the compiled kernels are in use: %s", found.path)
    else:
        log.info("the compiled kernels are not in use: %s", found.reason)
    return found


def _found() -> Kernels:
    if os.environ.get("VBDROP_NATIVE") == "0":
        return Kernels(None, None, "VBDROP_NATIVE=0 switches them off")
    compiler = find_compiler()
    if compiler is None:
        return Kernels(None, None, f"there is no C compiler (none of $CC, {', '.join(SEARCHED)})")
    path = None
    try:
        path = build(compiler)
        return Kernels(load(path), path)
    except (BuildError, OSError, AttributeError) as error:
        log.warning("the compiled kernels cannot be used, and training is slower without them: %s", error)
        return Kernels(None, path, str(error))


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The loaded kernels, or None if they are switched off or cannot be built here."""
    return kernels().library


def in_use() -> str:
    """The digest of the source of the kernels in use; ``"none"`` if PyTorch computes everything.

    Example:
        >>> in_use() == "none" or len(in_use()) == 12
        True
    """
    return "none" if library() is None else source_digest()


def warn_if_others(before: str | None, now: str, epoch: int) -> None:
    """Warn if a run resumes with different compiled kernels than it started with, or without them.

    Args:
        before: The result of `in_use` when the run was interrupted; None if unknown.
        now: The result of `in_use` in this process.
        epoch: The number of epochs that the run had completed.

    Example:
        >>> warn_if_others("none", "none", epoch=3)
    """
    if before is None or before == now:
        return
    then, since = (
        "without compiled kernels" if used == "none" else f"with the compiled kernels {used}" for used in (before, now)
    )
    warnings.warn(
        f"this run was trained {then} up to epoch {epoch} and resumes {since}: its result will not be "
        "bit-identical to that of an uninterrupted run. If the kernels are not in use, `vbdrop info` says why.",
        stacklevel=3,
    )
