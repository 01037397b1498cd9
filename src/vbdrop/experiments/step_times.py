"""Step times measured earlier on this machine, so that a plan is printed without measuring them again."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from vbdrop.cache import cache_dir
from vbdrop.experiments.config import Config
from vbdrop.experiments.environment import installed_version, processor
from vbdrop.train.files import RecordError, read_json, write_json

KEPT_SECONDS = 7 * 24 * 3600.0
"""A measurement is repeated after this time: the code of a step changes, and so do machines."""


def default_file() -> Path:
    """Return the file in the user's cache.

    Example:
        >>> default_file().name
        'step-times.json'
    """
    return cache_dir("step-times.json")


def kind_of(config: Config) -> str:
    """Return what the time of a step depends on: not the seed, the epochs or the numeric hyper-parameters.

    Example:
        >>> from vbdrop.experiments.config import resolve
        >>> from vbdrop.methods import Plain
        >>> from vbdrop.train import Budget
        >>> kind_of(resolve(Plain(), model="lenet-5", data="mnist", checksum="", budget=Budget()))
        'plain 1 lenet-5 classes=10 batch=100 kernels'
    """
    words = (value for value in config.hyper.values() if isinstance(value, str))
    network = (f"{name}={value}" for name, value in config.model_args.items())
    method = (config.method, str(config.version), *words)
    return " ".join((*method, config.model, *network, f"batch={config.budget.batch}", config.arithmetic))


class StepTimes:
    """The times of a step and of an evaluation by kind of run, in a file.

    A file that cannot be read or written only means that the times are measured again.

    Args:
        path: The file; None to keep nothing.
        clock: The time of day in seconds.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self.path, self.clock = path, clock
        self._machine = f"{processor()}, torch {torch.__version__}, vbdrop {installed_version('vbdrop')}"
        self._seen: dict[str, tuple[float, float]] = {}
        entries = self._read().get(self._machine, {})
        for kind, entry in entries.items() if isinstance(entries, dict) else ():
            match entry:
                case [float(step), float(evaluation), float(at)] if 0 <= clock() - at < KEPT_SECONDS:
                    self._seen[kind] = step, evaluation

    def get(self, config: Config, measure: Callable[[], tuple[float, float]]) -> tuple[float, float]:
        """Return the seconds of a step and of the evaluation of one example; measure them if they are not known."""
        kind = kind_of(config)
        if kind not in self._seen:
            self._seen[kind] = measure()
            self._write(kind)
        return self._seen[kind]

    def _read(self) -> dict[str, Any]:
        try:
            found = {} if self.path is None else read_json(self.path)
        except RecordError:
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, kind: str) -> None:
        """Add an entry to what others may have added since."""
        if self.path is None:
            return
        entries = self._read()
        known = entries.get(self._machine)
        entries[self._machine] = {**(known if isinstance(known, dict) else {}), kind: [*self._seen[kind], self.clock()]}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, entries)
        except OSError:
            pass  # without a writable cache, the times are just measured again
