"""Makes many runs with several processes: skips finished runs, survives failures, and can be stopped and resumed."""

import json
import math
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

from vbdrop.experiments.config import Config

POLL_SECONDS = 1.0
"""Seconds between attempts at a run that another runner is working on."""


class Watcher(Protocol):
    """Receives the events of a runner."""

    def started(self, config: Config) -> None:
        """A run was started or resumed."""

    def progressed(self, config: Config, done: int, steps: int, said: str) -> None:
        """A run did some steps."""

    def ended(self, config: Config, error: str | None) -> None:
        """A run ended or failed; with an empty string, it was left to another runner, or is about to start again."""


class Unwatched:
    """Ignores all events."""

    def started(self, config: Config) -> None:
        """Do nothing."""

    def progressed(self, config: Config, done: int, steps: int, said: str) -> None:
        """Do nothing."""

    def ended(self, config: Config, error: str | None) -> None:
        """Do nothing."""


@dataclass
class RunsSummary:
    """The outcome of a runner.

    Attributes:
        finished: The runs that it made.
        failed: The runs that failed, each with the error.
        traces: Their tracebacks, by name of the run.
    """

    finished: list[Config] = field(default_factory=list)
    failed: list[tuple[Config, str]] = field(default_factory=list)
    traces: dict[str, str] = field(default_factory=dict)


class Worker(Protocol):
    """Makes one run after another, and puts what happens into the queue of the runner."""

    config: Config | None
    """The run that it is making."""

    def start(self, config: Config, task: dict[str, Any]) -> None:
        """Start a run; the task is that of :func:`vbdrop.experiments.worker.serve`, without the settings."""

    def last_words(self) -> str:
        """Why it died."""

    def stop(self) -> None:
        """End at once, whatever it is doing."""


Events: TypeAlias = "queue.Queue[tuple[Worker, dict[str, Any]]]"
"""What workers report to a runner, as :func:`vbdrop.experiments.worker.serve` does; ``died`` for one that is gone."""


class Cluster(Protocol):
    """Where a runner makes its runs."""

    @property
    def size(self) -> int:
        """How many runs it makes at once; it may change."""

    def worker(self, events: Events) -> Worker:
        """A new worker."""


KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**31)}
"""Tells glibc to reuse freed memory of up to 32 MB instead of returning it: touching new pages takes up to a quarter of
the time of a step on images. Results do not depend on it."""


class Processes:
    """Processes of this machine, one thread each.

    Args:
        workers: How many.
    """

    def __init__(self, workers: int) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise ValueError(f"`workers` must be a number of processes, an int >= 1; got {workers!r}.")
        self._workers = workers

    @property
    def size(self) -> int:
        """The number of processes."""
        return self._workers

    def worker(self, events: Events) -> Worker:
        """Start a process."""
        return _Process(events)


class _Process:
    """A worker process; a thread puts its answers into the runner's queue."""

    def __init__(self, events: Events) -> None:
        self.config: Config | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- as long as the process
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "vbdrop.experiments.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**KEEP_MEMORY, **os.environ, **one_thread},
            start_new_session=True,  # Ctrl-C goes to the runner, which then stops its workers
        )
        self._reader = threading.Thread(target=self._read, args=(events,), daemon=True)
        self._reader.start()

    def _read(self, events: Events) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                with suppress(json.JSONDecodeError):  # a line that was cut off when the process was killed
                    events.put((self, json.loads(line)))
        events.put((self, {"kind": "died"}))

    def start(self, config: Config, task: dict[str, Any]) -> None:
        self.config = config
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it died, and its reader reports that
                self._process.stdin.write(json.dumps({**task, "config": config.as_dict()}) + "\n")
                self._process.stdin.flush()

    def last_words(self) -> str:
        """Why it died."""
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"its process {how}" + (f": {lines[-1]}" if lines else "")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(BrokenPipeError):  # a task that it did not read is still buffered
                    stream.close()


class Runner:
    """Makes runs with several processes of one thread each.

    A run is locked while a process works on it, so several runners can share a folder of records. A runner may be
    stopped at any time, with Ctrl-C or ``kill -9``: the next one resumes from the last checkpoints. If a process dies,
    its run has failed; one that had not made any progress is started again, once.

    Args:
        records: The folder of records.
        workers: The number of processes.
        cluster: Where the runs are made, instead of in processes of this machine.
        data_dir: The folder of the data.
        keep_weights: Keep the trained models.
        watcher: Receives the events.
    """

    def __init__(
        self,
        records: Path,
        *,
        workers: int = 1,
        cluster: Cluster | None = None,
        data_dir: Path | None = None,
        keep_weights: bool = False,
        watcher: Watcher | None = None,
    ) -> None:
        self.records = records
        self.cluster: Cluster = cluster or Processes(workers)
        self.watcher: Watcher = watcher or Unwatched()
        self._task = {
            "records": str(records),
            "data_dir": None if data_dir is None else str(data_dir),
            "keep_weights": keep_weights,
        }
        self._events: Events = queue.Queue()

    @property
    def workers(self) -> int:
        """How many runs are made at once."""
        return self.cluster.size

    def make(self, missing: Callable[[], Sequence[Config]], seconds: float = math.inf) -> RunsSummary:
        """Make all runs, until only failed ones are missing or the time is up.

        Args:
            missing: Returns the unfinished runs that can be made now, in order; it is called again whenever a run ends,
                since the next one may depend on it.
            seconds: The time limit; runs that are still going are stopped, and resume from their checkpoints next time.
        """
        summary = RunsSummary()
        end = time.monotonic() + seconds
        runs: Sequence[Config] | None = None
        idle: list[Worker] = []
        active: list[Worker] = []
        elsewhere: set[str] = set()
        begun: set[str] = set()
        try:
            while True:
                runs = missing() if runs is None else runs
                waiting = self._waiting(runs, active, summary)
                ready = [config for config in waiting if config.id not in elsewhere]
                self._hand_out(ready, idle, active)
                if (not active and not waiting) or time.monotonic() >= end:
                    return summary
                try:
                    worker, event = self._events.get(timeout=POLL_SECONDS)
                except queue.Empty:
                    if elsewhere:
                        elsewhere.clear()
                        runs = None  # the run may have ended in the other runner
                    continue
                if event["kind"] == "progress" and worker.config is not None:
                    begun.add(worker.config.id)
                    self.watcher.progressed(worker.config, event["done"], event["steps"], event["said"])
                elif worker in active:
                    active.remove(worker)
                    idle.append(worker)
                    runs = None
                    self._ended(worker, event, summary, elsewhere, begun)
                if event["kind"] == "died" and worker in idle:
                    idle.remove(worker)
                    worker.stop()
        finally:
            for worker in (*idle, *active):
                worker.stop()

    def _waiting(self, runs: Sequence[Config], active: list[Worker], summary: RunsSummary) -> list[Config]:
        taken = {worker.config.id for worker in active if worker.config is not None}
        taken |= {config.id for config, _ in summary.failed}
        return [config for config in runs if config.id not in taken]

    def _hand_out(self, ready: list[Config], idle: list[Worker], active: list[Worker]) -> None:
        for config in ready[: max(0, self.workers - len(active))]:
            worker = idle.pop() if idle else self.cluster.worker(self._events)
            active.append(worker)
            self.watcher.started(config)
            worker.start(config, self._task)

    def _ended(
        self, worker: Worker, event: dict[str, Any], summary: RunsSummary, elsewhere: set[str], begun: set[str]
    ) -> None:
        config = worker.config
        if config is None:
            return
        error: str | None = None
        if event["kind"] == "finished":
            summary.finished.append(config)
        elif event["kind"] == "busy":
            elsewhere.add(config.id)
            error = ""
        elif event["kind"] == "died" and config.id not in begun:
            begun.add(config.id)  # it is still missing, so it is started again
            error = ""
        else:
            error = worker.last_words() if event["kind"] == "died" else event["error"]
            summary.failed.append((config, error))
            summary.traces[config.name] = event.get("trace", "")
        self.watcher.ended(config, error)
        worker.config = None
