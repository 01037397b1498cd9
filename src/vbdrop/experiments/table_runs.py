"""The runs of a table: for each of its cells the trials, and then, with what they chose, the runs that count."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vbdrop.experiments.config import Config, make_method, resolve
from vbdrop.experiments.inputs import facts
from vbdrop.experiments.protocol import Column, Protocol, Row
from vbdrop.experiments.records import Record, all_records, record_of
from vbdrop.experiments.selection import choose, settings
from vbdrop.train import Method, RecordError


@dataclass(frozen=True)
class Cell:
    """A row in a column, as far as it has been run.

    Attributes:
        row: The method.
        column: The network.
        trials: The runs on the validation split.
        reference: The runs of the plain network that the choice depends on; empty where it depends on none.
        chosen: Which trial was chosen; None if it is not decided yet, or if every trial diverged.
        finals: The runs that count, a seed each: on all of the training data, unless the table is about validation;
            with what was chosen or, as long as nothing is, with the method's defaults; empty if every trial diverged.
        results: What those of them that have ended gave.
        trial_results: What the trials gave; None for one that has not ended.
        trials_left: How many of the runs have not ended on which the choice depends.
    """

    row: Row
    column: Column
    trials: tuple[Config, ...]
    reference: tuple[Config, ...]
    chosen: int | None
    finals: tuple[Config, ...]
    results: tuple[Mapping[str, Any], ...]
    trial_results: tuple[Mapping[str, Any] | None, ...]
    trials_left: int

    @property
    def decided(self) -> bool:
        """Whether all runs have ended on which the choice depends."""
        return self.trials_left == 0

    @property
    def choice(self) -> Mapping[str, Any] | None:
        """The hyper-parameters that were chosen."""
        return None if self.chosen is None else self.trials[self.chosen].hyper

    @property
    def validation(self) -> Mapping[str, Any] | None:
        """What the chosen trial gave."""
        return None if self.chosen is None else self.trial_results[self.chosen]


class Book:
    """A table's runs in a folder of records.

    Args:
        protocol: The table.
        records: The folder of records.
        checksums: Data set -> its checksum; by default that of the records that are there.

    Example:
        >>> from vbdrop.experiments.protocol import protocol_of
        >>> book = Book(protocol_of(4), Path("no/such/folder"))
        >>> cell = book.cell("vbd", "lenet-300-100")
        >>> len(cell.trials), cell.chosen, len(book.missing())
        (4, None, ...)
    """

    def __init__(self, protocol: Protocol, records: Path, checksums: Mapping[str, str] | None = None) -> None:
        self.protocol = protocol
        self.records = records
        self._checksums = checksums if checksums is not None else _recorded_checksums(records)

    def cell(self, row_key: str, column_key: str) -> Cell:
        """Return a cell as its records have it now.

        Raises:
            RecordError: A record is damaged.
        """
        row, column = self.protocol.row(row_key), self.protocol.column(column_key)
        selecting = self.protocol.column(column.select_on) if column.select_on else column
        trials = [self._config(method, selecting, trial=True) for method in settings(row, self.protocol.trials)]
        reference = self._reference(row, selecting)
        trial_results, reference_results = ([self.result(config) for config in each] for each in (trials, reference))
        trials_left, chosen = [*trial_results, *reference_results].count(None), None
        if not trials_left:
            plain = next((result["error"] for result in reference_results if result and "error" in result), None)
            ended = [result for result in trial_results if result is not None]
            chosen = choose(ended, kind=self.protocol.kind, margin=row.margin, reference=plain)
        finals: list[Config] = []
        if chosen is not None or trials_left:
            hyper = row.fixed if chosen is None else trials[chosen].hyper
            finals = self._finals(make_method(row.method, hyper), column)
        results = [result for config in finals if (result := self.result(config)) is not None]
        return Cell(
            row=row,
            column=column,
            trials=tuple(trials),
            reference=tuple(reference),
            chosen=chosen,
            finals=tuple(finals),
            results=tuple(results),
            trial_results=tuple(trial_results),
            trials_left=trials_left,
        )

    def cells(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Cell]:
        """Return the cells of these rows and columns, or of all."""
        row_keys = rows or [row.key for row in self.protocol.rows]
        column_keys = columns or [column.key for column in self.protocol.columns]
        return [self.cell(row, column) for row in row_keys for column in column_keys]

    def missing(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Config]:
        """Return the runs that can be made now and have not ended: trials first, each once."""
        cells = self.cells(rows, columns)
        trials = [config for cell in cells for config in (*cell.reference, *cell.trials)]
        finals = [config for cell in cells if cell.chosen is not None for config in cell.finals]
        unique = {config.id: config for config in (*trials, *finals)}
        return [config for config in unique.values() if not record_of(config, self.records).finished]

    def without_trials(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Config]:
        """Return the runs on all training data that have not ended, with the defaults where nothing is chosen yet."""
        unique = {config.id: config for cell in self.cells(rows, columns) for config in cell.finals}
        return [config for config in unique.values() if not record_of(config, self.records).finished]

    def expected(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Config]:
        """Return all runs that are still to be made; where nothing is chosen yet, with the method's defaults."""
        runs = {config.id: config for config in self.missing(rows, columns)}
        for cell in self.cells(rows, columns):
            if not cell.decided:
                finals = [config for config in cell.finals if config.id not in runs]
                runs |= {f"{cell.row.key}/{config.id}": config for config in finals}
        return list(runs.values())

    def result(self, config: Config) -> Mapping[str, Any] | None:
        """Return what a run gave; None if it has not ended.

        Raises:
            RecordError: Its record is damaged, or of another run.
        """
        record = record_of(config, self.records)
        if not record.finished:
            return None
        result = record.result
        if result["run"] != config.id:
            raise RecordError(f"{record.folder} holds the result of another run, {result['run']}")
        return result

    def _reference(self, row: Row, column: Column) -> list[Config]:
        if row.margin is None:
            return []
        (plain, *_) = settings(self.protocol.reference, self.protocol.trials)
        return [self._config(plain, column, trial=True)]

    def _finals(self, method: Method, column: Column) -> list[Config]:
        trial = self.protocol.on_validation
        return [self._config(method, column, trial=trial, seed=seed) for seed in range(column.seeds)]

    def _config(self, method: Method, column: Column, *, trial: bool, seed: int | None = None) -> Config:
        return resolve(
            method,
            model=column.model,
            model_args=column.model_args,
            data=column.data,
            checksum=self._checksums.get(column.data, ""),
            normalise=column.normalise,
            n_valid=column.n_valid if trial else 0,
            n_train=column.n_train,
            budget=column.budget_of(method, column.budget.seed if seed is None else seed),
        )


def checksums(protocol: Protocol, data_dir: Path | None = None) -> dict[str, str]:
    """Return the checksum of each data set of a table.

    Raises:
        DataError: One of them is not there, or damaged.

    Example:
        >>> from vbdrop.experiments.protocol import protocol_of
        >>> list(checksums(protocol_of(1, quick=True)))
        ['digits']
    """
    names = dict.fromkeys(column.data for column in protocol.columns)
    return {name: facts(name, data_dir).checksum for name in names}


def _recorded_checksums(records: Path) -> dict[str, str]:
    """Data set -> the checksum that most records have; so a table can be printed where the data are not."""
    seen: dict[str, Counter[str]] = {}
    for record in all_records(records):
        config = _readable(record)
        if config is not None:
            seen.setdefault(config.data, Counter())[config.checksum] += 1
    return {name: counter.most_common(1)[0][0] for name, counter in seen.items()}


def _readable(record: Record) -> Config | None:
    try:
        return record.config
    except RecordError:
        return None  # a damaged record of a table is reported when the table asks for it
