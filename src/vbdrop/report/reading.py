"""Reads and checks the files of a run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vbdrop import record_schema as schema
from vbdrop.record_schema import DamagedError, check, check_result


class ReportError(Exception):
    """A record cannot be shown: one of its files is missing or damaged, or the run has not ended.

    Example:
        >>> raise ReportError("runs/a has not ended")
        Traceback (most recent call last):
        vbdrop.report.reading.ReportError: runs/a has not ended
    """


@dataclass(frozen=True)
class Run:
    """The record of a run that has ended.

    Attributes:
        folder: Where it is.
        config: Its settings.
        result: Its final figures.
        metrics: The figures of each epoch.
        sessions: Where and when it was made; empty if unknown.
        details: What is inside the trained model; None if not kept.
        measured: The bytes and the latency of the small network; None if not measured.
        has_weights: Whether the trained weights were kept.
    """

    folder: Path
    config: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    details: dict[str, Any] | None
    measured: dict[str, Any] | None
    has_weights: bool

    @property
    def id(self) -> str:
        """Identifies the run."""
        text: str = self.result["run"]
        return text

    @property
    def diverged(self) -> bool:
        """Whether the loss became infinite, so that there are no results."""
        return bool(self.result["outcome"] != "finished")


def read_run(folder: Path) -> Run:
    """Read the record of a run.

    Args:
        folder: The folder of the run.

    Raises:
        ReportError: It is not a run, it has not ended, or one of its files is damaged.

    Example:
        >>> read_run(Path("no/such/run"))
        Traceback (most recent call last):
        vbdrop.report.reading.ReportError: no/such/run is not a run: there is no such folder
    """
    if not folder.is_dir():
        raise ReportError(f"{folder} is not a run: there is no such folder")
    if not (folder / "config.json").is_file():
        raise ReportError(f"{folder} is not a run: there is no config.json in it{_inside(folder)}")
    if not (folder / "result.json").is_file():
        raise ReportError(f"{folder} has not ended; the command that started it resumes it")
    try:
        return _checked(folder)
    except DamagedError as error:
        raise ReportError(str(error)) from error


def _checked(folder: Path) -> Run:
    config = _read(folder / "config.json", schema.CONFIG)
    result = _read(folder / "result.json", schema.ENDED)
    check_result(result, folder / "result.json")
    optional = {
        name: _of_run(folder / f"{name}.json", spec, result["run"])
        for name, spec in (("details", schema.DETAILS), ("measured", schema.MEASURED))
    }
    sessions = _read(folder / "environment.json", schema.ENVIRONMENT)["sessions"] if (
        folder / "environment.json").is_file() else []  # fmt: skip
    return Run(
        folder=folder,
        config=config,
        result=result,
        metrics=_metrics(folder / "metrics.jsonl"),
        sessions=sessions,
        has_weights=(folder / "weights.safetensors").is_file(),
        **optional,
    )


def _inside(folder: Path) -> str:
    """If it is a folder of runs, name those that may have been meant."""
    inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
    return f"; it holds the runs {', '.join(inside[:3])}{', …' if len(inside) > 3 else ''}" if inside else ""


def _of_run(path: Path, spec: dict[str, Any], run: str) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    value = _read(path, spec)
    if value["run"] != run:
        raise ReportError(f"{path} belongs to another run, {value['run']}; expected {run}")
    return value


def _read(path: Path, spec: dict[str, Any]) -> dict[str, Any]:
    value = _json(path, _text(path))
    check(value, spec, path)
    content: dict[str, Any] = value
    return content


def _metrics(path: Path) -> list[dict[str, Any]]:
    lines = [_json(path, line) for line in _text(path).split("\n")[:-1]]
    check(lines, [schema.EPOCH], path)
    return lines


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ReportError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{path} is damaged: {error}") from error


def _json(path: Path, text: str) -> Any:  # noqa: ANN401 -- whatever JSON can hold
    try:
        return json.loads(text)
    except ValueError as error:
        raise ReportError(f"{path} is damaged: {error}") from error
