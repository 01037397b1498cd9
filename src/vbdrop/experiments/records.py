"""A run's folder: its settings, its environment, its metrics and its result."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vbdrop import record_schema
from vbdrop.experiments.config import Config, from_dict
from vbdrop.record_schema import DamagedError, check, check_result
from vbdrop.train import RecordError, read_metrics
from vbdrop.train.files import read_json, write_json

CONFIG, ENVIRONMENT, METRICS, RESULT, WEIGHTS = (
    "config.json",
    "environment.json",
    "metrics.jsonl",
    "result.json",
    "weights.safetensors",
)
LOCK = ".lock"
NETWORK = "network.safetensors"
"""The small network of a run that compresses: see :mod:`vbdrop.experiments.kept_network`."""
DETAILS, MEASURED = "details.json", "measured.json"
"""For the report: what is inside the trained model, and the measurements of the small one."""


@dataclass(frozen=True)
class Record:
    """The folder of a run.

    Attributes:
        folder: Where it is.

    Example:
        >>> Record(Path("no/such/run")).finished
        False
    """

    folder: Path

    @property
    def finished(self) -> bool:
        """Whether the run has ended and has a result."""
        return (self.folder / RESULT).is_file()

    @property
    def config(self) -> Config:
        """Read the settings.

        Raises:
            RecordError: The file is missing or damaged.
        """
        try:
            return from_dict(read_json(self.folder / CONFIG))
        except RecordError as error:
            raise RecordError(f"{self.folder} is no run: {error}") from error

    @property
    def environment(self) -> dict[str, Any]:
        """Read where and when the run was made.

        Raises:
            RecordError: The file is missing or damaged.
        """
        return self._read(ENVIRONMENT, lambda value, file: check(value, record_schema.ENVIRONMENT, file))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Read the figures of each epoch."""
        return read_metrics(self.folder / METRICS)

    @property
    def result(self) -> dict[str, Any]:
        """Read the final figures of the run.

        Raises:
            RecordError: It has not ended, or the file is damaged.
        """
        return self._read(RESULT, check_result)

    def _read(self, name: str, check_content: Callable[[Any, Path], None]) -> dict[str, Any]:
        value: dict[str, Any] = read_json(self.folder / name)
        try:
            check_content(value, self.folder / name)
        except DamagedError as error:
            raise RecordError(str(error)) from error
        return value

    def open(self, config: Config) -> None:
        """Create the folder with these settings, or check that it has them.

        Raises:
            RecordError: The folder has other settings, or cannot be written to.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / CONFIG).exists():
                write_json(self.folder / CONFIG, config.as_dict())
        except OSError as error:
            raise RecordError(f"cannot write to {self.folder}: {error.strerror}") from error
        if self.config.id != config.id:
            raise RecordError(f"{self.folder} holds another run, {self.config.name}; expected {config.name}")

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Lock the run, so that no other process works on it; yields False, at once, if another one does.

        The system releases the lock when the process ends, however it ends. The lock file stays: if it were removed, a
        process that had opened it could lock the deleted file while another locks a new one.
        """
        lock = FileLock(self.folder / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()


def record_of(config: Config, records: Path) -> Record:
    """Return the record of a run in a folder of records, whether or not it exists yet.

    Example:
        >>> from vbdrop.experiments.config import resolve
        >>> from vbdrop.methods import METHODS
        >>> from vbdrop.train import Budget
        >>> run = resolve(METHODS["plain"](), model="lenet-5", data="mnist", checksum="ab", budget=Budget())
        >>> record_of(run, Path("records")).folder.name == run.name
        True
    """
    return Record(records / config.name)


def all_records(records: Path) -> list[Record]:
    """Return the records of a folder that have settings, by name.

    Example:
        >>> all_records(Path("no/such/folder"))
        []
    """
    return [Record(path.parent) for path in sorted(records.glob(f"*/{CONFIG}"))]


def readable_config(record: Record) -> Config | None:
    """Return the settings of a run; None if its record is damaged, which is reported when that run is asked for."""
    try:
        return record.config
    except RecordError:
        return None


def recorded_checksums(records: Path) -> dict[str, str]:
    """Return the checksum that most records have for each data set, so that tables can be printed without the data.

    Example:
        >>> recorded_checksums(Path("no/such/folder"))
        {}
    """
    seen: dict[str, Counter[str]] = {}
    for config in filter(None, map(readable_config, all_records(records))):
        seen.setdefault(config.data, Counter())[config.checksum] += 1
    return {name: counter.most_common(1)[0][0] for name, counter in seen.items()}
