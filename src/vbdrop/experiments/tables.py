"""The paper's tables with our figures beside the published ones, computed only from the records."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vbdrop.experiments.curves import Curve, threshold_curve
from vbdrop.experiments.older_runs import older_runs
from vbdrop.experiments.protocol import Column, Protocol, Row
from vbdrop.experiments.published import Published, published_in
from vbdrop.experiments.records import Record, record_of
from vbdrop.experiments.table_runs import Book, Cell, Trial
from vbdrop.methods import method_named
from vbdrop.train import RecordError


@dataclass(frozen=True)
class Stat:
    """A figure over several seeds.

    Attributes:
        mean: The mean.
        sd: The standard deviation of the sample (ddof = 1); None for a single run, or if the mean is infinite.
        n: The number of runs.
    """

    mean: float
    sd: float | None
    n: int


def stat(values: Sequence[float]) -> Stat:
    """Return mean, standard deviation and number.

    Example:
        >>> stat([1.0, 2.0, 3.0])
        Stat(mean=2.0, sd=1.0, n=3)
        >>> stat([1.5])
        Stat(mean=1.5, sd=None, n=1)
    """
    if not values:
        raise ValueError("`values` must hold at least one number; got none.")
    mean = math.fsum(values) / len(values)
    sd = statistics.stdev(values) if len(values) > 1 and math.isfinite(mean) else None
    return Stat(mean, sd, len(values))


@dataclass(frozen=True)
class Figures:
    """Our figures in a cell, over the runs that have ended.

    Attributes:
        error: The test error in percent, after the last epoch.
        nll: The test log likelihood.
        ece: The calibration error.
        ratio: How many times fewer weights remain.
        sparsity: The zeros of each layer in percent, on average.
        units: The remaining units, on average; None if the network is not a chain.
        compact_ratio: How many times fewer weights there are between the remaining units.
    """

    error: Stat
    nll: Stat
    ece: Stat
    ratio: Stat
    sparsity: tuple[float, ...]
    units: tuple[float, ...] | None
    compact_ratio: Stat


@dataclass(frozen=True)
class SeedRun:
    """A final run of a cell, for comparisons of two methods seed by seed.

    Attributes:
        seed: Its seed.
        error: Its error in percent.
        ratio: How many times fewer weights remain, by what the table counts; infinite if none do.
        curve: Its results at other thresholds; empty if the record lacks them.
    """

    seed: int
    error: float
    ratio: float
    curve: Curve


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: ours and the paper's.

    Attributes:
        row: The method.
        column: The network.
        ours: Our figures; None if no run has ended.
        paper: The paper's; None if it has no such cell.
        diverged: How many of the runs diverged; all trials count as one.
        older: Whether our figures are from runs that are not what the table currently asks for: made with another
            arithmetic, budget or setting. They are shown until a run of the table's own has ended.
        choice: The hyper-parameters chosen on validation data; None if none are yet: ``ours`` then has the method's
            defaults.
        validation: The chosen setting's result there, the means over its seeds.
        validation_n: How many seeds that is.
        runner_up: The hyper-parameters that would have been chosen otherwise.
        runner_up_validation: Their result there.
        trials: How many settings were tried.
        runs: The names of the runs behind ``ours``.
        command: The command that makes the missing runs; None if there are none.
        trials_left: How many runs have to be made before a setting is chosen.
        runs_left: How many final runs have to be made; all of them, until a setting is chosen.
        seeds: How many final runs there are to be.
        curves: The results of those runs at other thresholds, one curve per run; empty if the records lack them.
        by_seed: The runs that the table asks for, with a setting that was chosen or where there is nothing to choose.
        edges: The chosen hyper-parameters that are at an end of what was tried: the best value may lie beyond it.
        other_epochs: The epochs of older runs, if the column has another number of them; None otherwise.
    """

    row: Row
    column: Column
    ours: Figures | None
    paper: Published | None
    diverged: int
    older: bool
    choice: Mapping[str, Any] | None
    validation: Mapping[str, Any] | None
    runner_up: Mapping[str, Any] | None
    runner_up_validation: Mapping[str, Any] | None
    trials: int
    runs: tuple[str, ...]
    command: str | None
    trials_left: int = 0
    runs_left: int = 0
    seeds: int = 1
    curves: tuple[Curve, ...] = ()
    by_seed: tuple[SeedRun, ...] = ()
    edges: tuple[str, ...] = ()
    validation_n: int = 0
    other_epochs: int | None = None

    @property
    def is_by_default(self) -> bool:
        """Whether our figures have default settings although the method has something to choose."""
        knobs = method_named(self.row.method).knobs if self.row.knobs is None else self.row.knobs
        to_choose = any(name not in self.row.fixed for name in knobs)
        return self.ours is not None and not self.older and self.choice is None and to_choose


@dataclass(frozen=True)
class Table:
    """A table of the paper, or of our own, with our figures.

    Attributes:
        protocol: What was run.
        cells: Its cells, row by row.
        made_on: The machines and versions of the runs.
    """

    protocol: Protocol
    cells: tuple[TableCell, ...]
    made_on: tuple[str, ...]

    def cell(self, row: str, column: str) -> TableCell:
        """Return a cell."""
        return next(cell for cell in self.cells if (cell.row.key, cell.column.key) == (row, column))

    def as_dict(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return {
            "table": self.protocol.number,
            "title": self.protocol.title,
            "quick": self.protocol.quick,
            "columns": [asdict(column) for column in self.protocol.columns],
            "made_on": list(self.made_on),
            "cells": [_cell_dict(cell) for cell in self.cells],
        }


def table(book: Book, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> Table:
    """Read a table from its records.

    Args:
        book: The table's protocol and records.
        rows: The keys of its rows; all by default.
        columns: The keys of its columns; all by default.

    Raises:
        RecordError: A record is damaged.
        ValueError: The table has no such row or column.

    Example:
        >>> from pathlib import Path
        >>> from vbdrop.experiments.paper_tables import protocol_of
        >>> cell = table(Book(protocol_of(4), Path("no/such/folder"))).cell("vbd", "lenet-300-100")
        >>> cell.ours, cell.paper.ratio, cell.command
        (None, 81, 'vbdrop table 4 --run --row vbd --column lenet-300-100')
    """
    cells = book.cells(rows, columns)
    return Table(book.protocol, tuple(_cell(book, cell) for cell in cells), _made_on(book, cells))


def _cell(book: Book, cell: Cell) -> TableCell:
    finished = [result for result in cell.results if result["outcome"] == "finished"]
    hopeless = bool(cell.trials) and cell.decided and cell.chosen is None
    diverged = 1 if hopeless else len(cell.results) - len(finished)
    complete = cell.decided and len(cell.results) == len(cell.finals)
    ended = [record for config in cell.finals if (record := record_of(config, book.records)).finished]
    older = [] if cell.results or hopeless else older_runs(book, cell)
    if older:
        ended, finished = older, [record.result for record in older]
    command = f"{book.protocol.command} {'--quick' if book.protocol.quick else '--run'} --row {cell.row.key}"
    if book.protocol.number is not None:
        command += f" --column {cell.column.key}"
    return TableCell(
        row=cell.row,
        column=cell.column,
        ours=_figures(finished) if finished else None,
        paper=published_in(book.protocol.number, cell.row.key, cell.column.key),
        diverged=diverged,
        older=bool(older),
        choice=_knobs(cell, cell.chosen),
        validation=cell.chosen.mean if cell.chosen else None,
        runner_up=_knobs(cell, cell.runner_up),
        runner_up_validation=cell.runner_up.mean if cell.runner_up else None,
        trials=sum(bool(trial.runs) for trial in cell.trials),
        runs=tuple(record.folder.name for record in ended),
        command=None if complete else command,
        trials_left=cell.trials_left,
        runs_left=len(cell.finals) - (0 if cell.trials_left else len(cell.results)),
        seeds=len(cell.finals),
        curves=tuple(map(threshold_curve, ended)),
        by_seed=_by_seed(book, cell) if cell.decided else (),
        edges=_edges(cell),
        validation_n=len(cell.chosen.decisive) if cell.chosen else 0,
        other_epochs=_other_epochs(older, cell.column),
    )


def _other_epochs(older: Sequence[Record], column: Column) -> int | None:
    """The epochs of older runs, which are all of one kind, if they are not the column's."""
    epochs = {record.config.budget.epochs for record in older} - {column.budget.epochs}
    return min(epochs, default=None)


def _by_seed(book: Book, cell: Cell) -> tuple[SeedRun, ...]:
    kind = book.protocol.kind
    ratio: Literal["ratio", "compact_ratio"] = "compact_ratio" if kind == "neurons" else "ratio"
    found = []
    for config in cell.finals:
        record = record_of(config, book.records)
        if record.finished and (result := record.result)["outcome"] == "finished":
            curve = threshold_curve(record, "compact_weights" if kind == "neurons" else "nonzero")
            times = math.inf if result[ratio] is None else result[ratio]
            found.append(SeedRun(config.budget.seed, result["error"], times, curve))
    return tuple(found)


def _edges(cell: Cell) -> tuple[str, ...]:
    """The numbers of the chosen setting that are the lowest or the highest of those that were tried."""
    chosen = _knobs(cell, cell.chosen) or {}
    found = []
    for name, value in chosen.items():
        tried = {trial.hyper[name] for trial in cell.trials if isinstance(trial.hyper[name], float)}
        if len(tried) > 1 and value in (min(tried), max(tried)):
            found.append(name)
    return tuple(found)


def _figures(results: Sequence[Mapping[str, Any]]) -> Figures:
    layers = zip(
        *([100 * (1 - layer["nonzero"] / layer["weights"]) for layer in r["layers"]] for r in results), strict=True
    )
    units = [result["units"] for result in results]
    return Figures(
        error=_stat(results, "error"),
        nll=_stat(results, "nll"),
        ece=_stat(results, "ece"),
        ratio=_stat(results, "ratio"),
        sparsity=tuple(statistics.fmean(layer) for layer in layers),
        units=None if None in units else tuple(statistics.fmean(layer) for layer in zip(*units, strict=True)),
        compact_ratio=_stat(results, "compact_ratio"),
    )


def _stat(results: Sequence[Mapping[str, Any]], name: str) -> Stat:
    return stat([math.inf if result[name] is None else result[name] for result in results])


def _knobs(cell: Cell, trial: Trial | None) -> dict[str, Any] | None:
    """The values of one trial for the hyper-parameters in which the trials differ."""
    if trial is None:
        return None
    varied = [name for name in trial.hyper if len({repr(other.hyper.get(name)) for other in cell.trials}) > 1]
    return {name: trial.hyper[name] for name in varied}


def _made_on(book: Book, cells: Sequence[Cell]) -> tuple[str, ...]:
    seen: dict[str, None] = {}
    for cell in cells:
        own = [record_of(config, book.records) for config in cell.finals]
        for record in [record for record in own if record.finished] or older_runs(book, cell):
            try:
                sessions = record.environment["sessions"]
            except RecordError:
                seen["an unknown machine (environment.json is missing or damaged)"] = None
                continue
            for session in sessions:
                threads = f"{session['threads']} thread" + ("s" if session["threads"] > 1 else "")
                seen[f"{session['machine']['processor']}, torch {session['versions']['torch']}, {threads}"] = None
    return tuple(seen)


def _cell_dict(cell: TableCell) -> dict[str, Any]:
    return {
        "row": cell.row.key,
        "title": cell.row.title,
        "method": cell.row.method,
        "fixed": dict(cell.row.fixed),
        "base": cell.row.base,
        "column": cell.column.key,
        "ours": None if cell.ours is None else _finite(asdict(cell.ours)),
        "paper": None if cell.paper is None else asdict(cell.paper),
        "diverged": cell.diverged,
        "older": cell.older,
        "other_epochs": cell.other_epochs,
        "choice": cell.choice,
        "validation": cell.validation,
        "validation_n": cell.validation_n,
        "runner_up": cell.runner_up,
        "runner_up_validation": cell.runner_up_validation,
        "trials": cell.trials,
        "runs": list(cell.runs),
        "command": cell.command,
        "trials_left": cell.trials_left,
        "runs_left": cell.runs_left,
        "edges": list(cell.edges),
    }


def _finite(value: Any) -> Any:  # noqa: ANN401 -- whatever figures hold
    """JSON has no infinity: the ratio of a network with nothing left is null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
