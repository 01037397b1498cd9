"""Ray: the runs of tables on the machines of a cluster, or on this one.

Every run is a Ray task that holds as many of a node's CPUs as it has threads. It works in a folder of the node; with
each checkpoint, and at the end, the files are sent to the driver, which alone writes the records. If a worker process
or a whole node is lost, the driver starts the run again elsewhere, from the last checkpoint that it received.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

from vbdrop.experiments.config import Config
from vbdrop.experiments.environment import installed_version
from vbdrop.experiments.records import RESULT, record_of
from vbdrop.experiments.runner import Events, Worker
from vbdrop.experiments.worker import made
from vbdrop.integrations.extras import imported
from vbdrop.integrations.travelling_folder import Work, contents, put, work_in_folder
from vbdrop.train import checkpoint

ray: Any = imported("ray", "ray")

THREADS = 1
"""The threads of a run, and so the CPUs that its task holds."""

LOSSES = 5
"""A run that was lost this many times without a new checkpoint in between has failed."""

NO_CLUSTER = "Could not find any running Ray instance"
"""What Ray says if it was not told of a cluster, and finds none on this machine."""

SAME_VERSIONS = ("vbdrop", "torch", "numpy")
"""What the nodes must have in the driver's version."""


class LostError(Exception):
    """The process of a task was killed, or its node is gone.

    Example:
        >>> raise LostError("its process was killed by signal 9")
        Traceback (most recent call last):
        vbdrop.integrations.ray.LostError: its process was killed by signal 9
    """


@contextmanager
def ray_cluster(workers: int) -> Iterator["RayCluster"]:
    """Connect to the cluster that ``RAY_ADDRESS`` names or ``ray start`` has started here, until the block ends.

    If there is none, or ``RAY_ADDRESS`` is ``local``, Ray is started here.

    Args:
        workers: If Ray is started here: the number of CPUs that it may use.

    Example:
        >>> with ray_cluster(workers=2) as cluster:  # doctest: +SKIP
        ...     Runner(Path("records"), cluster=cluster).make(missing)
    """
    with redirect_stdout(sys.stderr):  # to which Ray prints of workers that were lost
        _connect(workers)
        try:
            yield RayCluster()
        finally:
            ray.shutdown()


def _connect(workers: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # of workers started here; Ray's 15 starves beside other work
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    address = os.environ.get("RAY_ADDRESS", "auto")
    if address != "local":
        try:
            ray.init(address=address, **quiet)
        except ConnectionError as error:
            if NO_CLUSTER not in str(error):  # there is one, but it cannot be reached
                raise
        else:
            return
    ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)


class RayCluster:
    """The connected Ray cluster, for a :class:`vbdrop.experiments.Runner`: as many runs at once as it has CPUs for."""

    @property
    def size(self) -> int:
        """How many runs fit on the nodes that are there now."""
        return max(1, int(ray.cluster_resources().get("CPU", 1)) // THREADS)

    def worker(self, events: Events) -> Worker:
        """A worker, which makes runs as Ray tasks."""
        return _RayWorker(events)


class _RayWorker:
    """Makes runs as Ray tasks; a thread waits for them and writes the records."""

    def __init__(self, events: Events) -> None:
        self.config: Config | None = None
        self._events = events
        self._thread: threading.Thread | None = None
        self._task: RemoteFolder | None = None

    def start(self, config: Config, task: dict[str, Any]) -> None:
        self.config = config
        self._thread = threading.Thread(target=self._watch, args=(config, task), daemon=True)
        self._thread.start()

    def last_words(self) -> str:
        return "its task is gone"

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _watch(self, config: Config, task: dict[str, Any]) -> None:
        try:
            event = self._made(config, task)
        except Exception as error:  # whatever it is, the runner has to know that the run has ended
            event = {"kind": "failed", "error": str(error).strip() or type(error).__name__}
        self._events.put((self, event))

    def _made(self, config: Config, task: dict[str, Any]) -> dict[str, Any]:
        record = record_of(config, Path(task["records"]))
        record.open(config)
        with record.lock() as held:
            if not held:
                return {"kind": "busy"}
            if record.finished:
                return {"kind": "finished"}
            data_dir = task["data_dir"] and str(Path(task["data_dir"]).absolute())
            work = partial(_make_run, {**task, "data_dir": data_dir, "config": config.as_dict()})
            self._task = RemoteFolder(work, record.folder, checkpoint.FILE, RESULT)
            answer: dict[str, Any] = self._task.run(lambda line: self._events.put((self, json.loads(line))))
            if record.finished:
                checkpoint.remove(record.folder)
            return answer


def _make_run(task: dict[str, Any], folder: Path, say: Callable[[str], Any]) -> dict[str, Any]:
    """The run of a task of a :class:`vbdrop.experiments.Runner`, in a folder of a node."""
    return made({**task, "records": str(folder.parent)}, lambda progress: say(json.dumps(progress)))


class RemoteFolder:
    """Work in a folder of some node, whose files come to a folder of the driver.

    Args:
        work: What is done there; its answer comes with the last event.
        folder: The folder of the driver, whose files the work gets.
        checkpoint_file: Its checkpoints.
        result_file: The file that makes the folder complete: it is written last, and only at the end.
    """

    def __init__(self, work: Work, folder: Path, checkpoint_file: str, result_file: str) -> None:
        self._work, self._folder = work, folder
        self._checkpoint, self._result = checkpoint_file, result_file
        self._events: Any = None
        self._cancelled = False

    def run(self, say: Callable[[str], Any]) -> Any:  # noqa: ANN401 -- whatever the work returns
        """Do the work on some node, and on another one where it was lost, from its last checkpoint.

        Args:
            say: Gets the lines that the work says.

        Returns:
            What the work returned, with all its files in the folder.

        Raises:
            LostError: It was lost too often, or cancelled; the folder has the last checkpoint.
            RuntimeError: The work failed, or the node cannot do it.
        """
        losses = 0
        while True:
            before = self._kept()
            try:
                return self._attempt(say)
            except LostError as error:
                losses = losses + 1 if self._kept() == before else 1
                if self._cancelled or losses >= LOSSES:
                    raise LostError(f"lost {losses} times at the same place: {error}") from error

    def cancel(self) -> None:
        """Stop the work."""
        self._cancelled = True
        with suppress(Exception):  # Ray itself may be gone
            ray.cancel(self._events, force=True)

    def _kept(self) -> bytes | None:
        return contents(self._folder, self._checkpoint).get(self._checkpoint)

    def _attempt(self, say: Callable[[str], Any]) -> Any:  # noqa: ANN401
        versions = {name: installed_version(name) for name in SAME_VERSIONS}
        files = contents(self._folder, self._checkpoint)
        options = {"num_cpus": THREADS, "max_retries": 0, "num_returns": "streaming", "scheduling_strategy": "SPREAD"}
        task = ray.remote(**options)(_work)
        self._events = task.remote(versions, self._work, self._folder.name, files, self._checkpoint)
        event: dict[str, Any] = {}
        try:
            for reference in self._events:
                event = ray.get(reference)
                files = event.pop("files", {})
                if event["kind"] == "files":
                    files.pop(self._result, None)  # it has not ended yet
                put(self._folder, files, last=self._result if self._result in files else self._checkpoint)
                if event["kind"] == "line":
                    say(event["line"])
        except ray.exceptions.RayTaskError as error:
            raise RuntimeError(str(error.cause or error)) from error
        except ray.exceptions.RayError as error:
            raise LostError(str(error).partition("\n")[0]) from error
        if event.get("kind") != "ended":
            raise LostError("its task ended without an answer")
        return event["answer"]


def _work(
    versions: Mapping[str, str], work: Work, name: str, files: Mapping[str, bytes], checkpoint_file: str
) -> Iterator[dict[str, Any]]:
    """The task: runs on a node."""
    for package, wanted in versions.items():
        if (found := installed_version(package)) != wanted:
            raise RuntimeError(f"the node must have {package} {wanted}, as the driver has; it has {found}.")
    yield from work_in_folder(work, name, files, checkpoint_file)
