"""New processes that start at once: they are forked from one that has imported torch and vbdrop, and done nothing else.

For programs that must not share a process with the test. What depends on the imports themselves, or on another
interpreter, starts Python with `subprocess`.
"""

import contextlib
import multiprocessing
import os
import sys
import types
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    out: str
    error: str


def run_all(programs: Sequence[tuple[str, Sequence[str]]], seconds: float, **change: str | None) -> list[Ended]:
    """How programs ended that run side by side, each a text with the arguments that it finds in ``sys.argv``.

    Args:
        programs: The programs.
        seconds: After so long, those that still run are killed, and have a negative code.
        change: What differs in their environment; None for a variable that is not in it.
    """
    environment = {name: value for name, value in ({**os.environ} | change).items() if value is not None}
    with TemporaryDirectory() as folder:
        streams = [
            tuple(Path(folder) / f"{kind}-{index}" for kind in ("out", "error")) for index in range(len(programs))
        ]
        processes = [
            _context().Process(target=_run, args=(program, [str(each) for each in arguments], where, environment))
            for (program, arguments), where in zip(programs, streams, strict=True)
        ]
        for process in processes:
            process.start()
        for process in processes:
            _wait(process, seconds)
        said = [[where.read_text() for where in pair] for pair in streams]
        return [Ended(process.exitcode, *texts) for process, texts in zip(processes, said, strict=True)]


def run(program: str, *arguments: str, seconds: float = 300, **change: str | None) -> Ended:
    """How one program ended; see `run_all`."""
    return run_all([(program, arguments)], seconds, **change)[0]


def _context() -> multiprocessing.context.BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    return context


def _wait(process: BaseProcess, seconds: float) -> None:
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()


def _run(program: str, arguments: Sequence[str], streams: tuple[Path, Path], environment: Mapping[str, str]) -> None:
    for number, path in zip((1, 2), streams, strict=True):
        path.touch()
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    # A module outlives the program, so that the process ends before torch takes a group of gloo apart: its threads may
    # then wait for the interpreter, which waits for them (one rank in fifteen hangs, with nothing but a Trainer).
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    with contextlib.ExitStack() as ended:
        ended.callback(sys.stdout.flush)
        exec(compile(program, "<program>", "exec"), vars(main))
