"""Ray: the runs of tables on the machines of a cluster, or on this one.

Every run is a Ray task that reserves as many of a node's CPUs as it has threads. It works in a folder of the node;
with each checkpoint, and at the end, its files are sent to the driver, which alone writes the records. If a worker
process or a whole node is lost, the driver starts the run again elsewhere, from the last checkpoint that it received.
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
"""The number of threads of a run, and hence of the CPUs that its task reserves."""

LOSSES = 5
"""A run that is lost this many times without a new checkpoint in between has failed."""

NO_CLUSTER = "Could not find any running Ray instance"
"""Ray's error if no address was given and no cluster runs on this machine."""

SAME_VERSIONS = ("vbdrop", "torch", "numpy")
"""The packages that the nodes must have in the same version as the driver."""


class LostError(Exception):
    """The process of a task was killed, or its node is gone.

    Example:
        >>> raise LostError("its process was killed by signal 9")
        Traceback (most recent call last):
        vbdrop.integrations.ray.LostError: its process was killed by signal 9
    """


@contextmanager
def ray_cluster(workers: int) -> Iterator["RayCluster"]:
    """Connect to the cluster at ``RAY_ADDRESS``, or the one started here by ``ray start``, until the block ends.

    If there is none, or ``RAY_ADDRESS`` is ``local``, Ray is started here.

    Args:
        workers: The number of CPUs that Ray may use, if it is started here.

    Example:
        >>> with ray_cluster(workers=2) as cluster:  # doctest: +SKIP
        ...     Runner(Path("records"), cluster=cluster).make(missing)
    """
    with redirect_stdout(sys.stderr):  # Ray prints messages about lost workers to stdout
        _connect(workers)
        try:
            yield RayCluster()
        finally:
            ray.shutdown()


def _connect(workers: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 starves its workers beside other work
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    address = os.environ.get("RAY_ADDRESS", "auto")
    if address != "local":
        try:
            ray.init(address=address, **quiet)
        except ConnectionError as error:
            if NO_CLUSTER not in str(error):  # a cluster exists, but cannot be reached
                raise
        else:
            return
    ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)


class RayCluster:
    """The connected Ray cluster, for a :class:`vbdrop.experiments.Runner`, with as many runs at once as CPUs allow."""

    @property
    def size(self) -> int:
        """How many runs fit on the current nodes."""
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
        except Exception as error:  # whatever happens, the runner must learn that the run has ended
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
    """Make the run of a task of a :class:`vbdrop.experiments.Runner`, in a folder of a node."""
    return made({**task, "records": str(folder.parent)}, lambda progress: say(json.dumps(progress)))


class RemoteFolder:
    """Runs a function in a folder of some node, and copies its files to a folder of the driver.

    Args:
        work: The function; what it returns comes with the last event.
        folder: The folder of the driver, whose files are sent to the node first.
        checkpoint_file: The name of the checkpoint.
        result_file: The file that makes the folder complete: it is written last, and only at the end.
    """

    def __init__(self, work: Work, folder: Path, checkpoint_file: str, result_file: str) -> None:
        self._work, self._folder = work, folder
        self._checkpoint, self._result = checkpoint_file, result_file
        self._events: Any = None
        self._cancelled = False

    def run(self, say: Callable[[str], Any]) -> Any:  # noqa: ANN401 -- whatever the work returns
        """Do the work on some node; if it is lost, do it again from its last checkpoint.

        Args:
            say: Called with each line that the work reports.

        Returns:
            What the work returned; all of its files are then in the folder.

        Raises:
            LostError: The work was lost too often, or cancelled; the folder has the last checkpoint.
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
                    files.pop(self._result, None)  # the work has not ended yet
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
