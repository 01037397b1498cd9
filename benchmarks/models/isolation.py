"""Runs an entry in its own process, so that a crash does not end the others."""

import multiprocessing
import resource
from collections.abc import Collection
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks.models.table import ENTRIES
from benchmarks.models.torchvision_import import import_torchvision
from benchmarks.models.trial import attempt

SECONDS = 600
"""The time limit of an entry, in seconds."""

MEMORY = 12.0
"""The limit on its address space, in GB."""

PRELOADED = ["benchmarks.models.preloaded"]
"""The modules that every process starts with."""


def isolated(
    key: str, seconds: float = SECONDS, memory: float = MEMORY, without: Collection[str] = ()
) -> dict[str, Any]:
    """Try an entry in a new process, which starts with torch and the libraries imported.

    Args:
        key: The entry.
        seconds: The time limit.
        memory: The limit on the address space, in GB.
        without: Steps to leave out.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_worker, args=(key, memory, tuple(without), sender), daemon=True)
    process.start()
    sender.close()
    try:
        if receiver.poll(seconds):
            return dict(receiver.recv())
        said = f"took longer than {seconds} s"
    except EOFError:
        process.join()
        said = f"the process ended with status {process.exitcode}"
    finally:
        process.kill()
        process.join()
    return {"entry": key, "note": ENTRIES[key].note, "errors": {"process": said}}


def _worker(key: str, memory: float, without: tuple[str, ...], sender: Connection) -> None:
    limit = int(memory * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    torch.set_num_threads(1)
    import_torchvision()  # timm and transformers import it, too
    sender.send(attempt(ENTRIES[key], without))
