"""Runs work in a folder of another machine; its files are sent there and back, so that it can resume anywhere."""

import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import torch

from vbdrop.experiments.records import LOCK
from vbdrop.files import write_atomically

POLL_SECONDS = 0.5
"""The folder is checked after this many seconds without a line."""

LINE_SECONDS = 2.0
"""The least time between two lines that are passed on."""

Work: TypeAlias = Callable[[Path, Callable[[str], Any]], Any]
"""Works in a folder, and may report lines of text; its result can be pickled."""


def contents(folder: Path, first: str) -> dict[str, bytes]:
    """The files of a folder, without its lock and hidden files.

    Args:
        folder: The folder.
        first: The file to read first, so that it is never newer than the files to which lines are appended.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "metrics.jsonl").write_text("{}")
        >>> contents(folder, first="checkpoint.pt")
        {'metrics.jsonl': b'{}'}
    """
    found = {}
    for path in sorted(folder.iterdir(), key=lambda path: path.name != first) if folder.is_dir() else ():
        if path.is_file() and path.name != LOCK and not path.name.startswith("."):
            with suppress(FileNotFoundError):  # a temporary file that is already gone
                found[path.name] = path.read_bytes()
    return found


def put(folder: Path, files: Mapping[str, bytes], last: str) -> None:
    """Write files to a folder, each atomically, and one of them after all others.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> put(folder, {"result.json": b"{}", "metrics.jsonl": b""}, last="result.json")
        >>> sorted(path.name for path in folder.iterdir())
        ['metrics.jsonl', 'result.json']
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == last):
        if Path(name).name != name:
            raise ValueError(f"`files` must have names of files, without a folder; got {name!r}.")
        write_atomically(folder / name, files[name])


def work_in_folder(work: Work, name: str, files: Mapping[str, bytes], checkpoint: str) -> Iterator[dict[str, Any]]:
    """Do work with one thread in a new folder that has these files, and report its lines and files.

    Args:
        work: The work to do.
        name: The name of the folder.
        files: The files in the folder at the start.
        checkpoint: The name of the checkpoint: each new version of it is sent, together with the other files.

    Yields:
        Events with a ``kind`` and its content: a ``line``; the ``files``, at a checkpoint; and finally ``ended``, with
        the ``answer`` of the work and the ``files``.

    Example:
        >>> def work(folder, say):
        ...     return (folder / "question").read_text().upper()
        >>> (event,) = work_in_folder(work, "run", {"question": b"why?"}, checkpoint="checkpoint.pt")
        >>> event["kind"], event["answer"]
        ('ended', 'WHY?')
    """
    with tempfile.TemporaryDirectory(prefix="vbdrop-") as base:
        folder = Path(base) / name
        put(folder, files, last=checkpoint)
        said: queue.Queue[str | _Ended] = queue.Queue()
        threading.Thread(target=_do, args=(work, folder, said), daemon=True).start()
        known, passed = _version(folder / checkpoint), 0.0
        while True:
            try:
                line = said.get(timeout=POLL_SECONDS)
            except queue.Empty:
                line = ""
            if isinstance(line, _Ended):
                break
            if (version := _version(folder / checkpoint)) not in (None, known):
                known = version
                yield {"kind": "files", "files": contents(folder, checkpoint)}
            if line and time.monotonic() - passed >= LINE_SECONDS:
                passed = time.monotonic()
                yield {"kind": "line", "line": line}
        if line.error is not None:
            raise line.error
        yield {"kind": "ended", "answer": line.answer, "files": contents(folder, checkpoint)}


class _Ended:
    """The last message: the result, or what went wrong."""

    def __init__(self, answer: object, error: BaseException | None) -> None:
        self.answer, self.error = answer, error


def _do(work: Work, folder: Path, said: "queue.Queue[str | _Ended]") -> None:
    torch.set_num_threads(1)
    try:
        said.put(_Ended(work(folder, said.put), None))
    except BaseException as error:  # it is raised where the work is awaited
        said.put(_Ended(None, error))


def _version(path: Path) -> tuple[int, int] | None:
    """A value that changes when a file is replaced; None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
