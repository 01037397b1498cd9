"""The process that makes runs for a runner: it reads one task per line, and answers with lines of JSON.

``python -m vbdrop.experiments.worker`` is started by :class:`vbdrop.experiments.runner.Runner`, with one thread. It
ends when its standard input does, even in the middle of a run: once the runner is gone, nothing waits for it.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch

from vbdrop.data import DataError
from vbdrop.experiments.config import from_dict
from vbdrop.experiments.execution import BusyError, execute
from vbdrop.train import Epoch, RecordError, Report
from vbdrop.train.epoch_words import figures

SECONDS = 0.5
"""The least time between two progress lines of a run."""

EXPECTED = (DataError, RecordError, ValueError, OSError)
"""Errors whose message is enough; for any other, the kind is reported, too."""


def serve(tasks: TextIO, answers: TextIO) -> None:
    """Make the run of each task, until there are no more.

    Args:
        tasks: Lines with ``config``, ``records``, ``data_dir`` and ``keep_weights``.
        answers: Receives lines with ``kind``: ``progress``, ``finished``, ``busy`` or ``failed``.
    """

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    torch.set_num_threads(1)
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_read, args=(tasks, waiting), daemon=True).start()
    while True:
        task = waiting.get()
        say(made(task, say))


def _read(tasks: TextIO, waiting: "queue.Queue[dict[str, Any]]") -> None:
    for line in tasks:
        waiting.put(json.loads(line))
    os._exit(0)


def made(task: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Make the run of a task.

    Args:
        task: What :func:`serve` reads.
        say: Called with the progress, now and then.

    Returns:
        The last line for the runner: ``finished``, ``busy`` or ``failed``, with the error.
    """
    data_dir = task["data_dir"]
    try:
        execute(
            from_dict(task["config"]),
            Path(task["records"]),
            data_dir=None if data_dir is None else Path(data_dir),
            report=_progress(say),
            keep_weights=task["keep_weights"],
        )
    except BusyError:
        return {"kind": "busy"}
    except Exception as error:  # a run that fails must not stop the others
        said = str(error) if isinstance(error, EXPECTED) else f"{type(error).__name__}: {error}"
        return {"kind": "failed", "error": said.strip() or type(error).__name__, "trace": traceback.format_exc()}
    return {"kind": "finished"}


def _progress(say: Callable[[dict[str, Any]], None]) -> Report:
    last, said = 0.0, ""

    def report(done: int, steps: int, epoch: Epoch | None) -> None:
        nonlocal last, said
        said = figures(epoch) or said
        if time.monotonic() - last >= SECONDS or done == steps:
            last = time.monotonic()
            say({"kind": "progress", "done": done, "steps": steps, "said": said})

    return report


def main() -> None:
    """Serve standard input and output; what a library prints goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
