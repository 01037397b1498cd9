"""The runs of a table: for each cell the trials and then, with the chosen setting, the final runs."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from vbdrop.experiments.config import Config, make_method, resolve
from vbdrop.experiments.protocol import TRIAL_SEEDS, Column, Protocol, Row
from vbdrop.experiments.published import published_in
from vbdrop.experiments.records import Record, all_records, readable_config, record_of, recorded_checksums
from vbdrop.experiments.search import SEEDS, NeededTrials, along_a_scale, halving, is_scale, survivors, unscreened
from vbdrop.experiments.selection import (
    SIZES,
    closest_in_size,
    hopeful,
    mean_result,
    ranked,
    settings,
    simplicity,
    within,
)
from vbdrop.train import Budget, Method, RecordError

ARITHMETIC = "plain"
"""The arithmetic of all runs of a table: it does not change with the kernels, so that a record can be reproduced."""


@dataclass(frozen=True)
class Trial:
    """A setting of a method on the validation split, as far as it has been run.

    Attributes:
        hyper: The hyper-parameters.
        runs: One run per seed; none if the choice does not depend on this setting.
        results: Their results; None for a run that has not ended.
    """

    hyper: Mapping[str, Any]
    runs: tuple[Config, ...]
    results: tuple[Mapping[str, Any] | None, ...]

    @property
    def left(self) -> int:
        """How many runs have not ended."""
        return self.results.count(None)

    @property
    def decisive(self) -> list[Mapping[str, Any]]:
        """The results of the longest runs, as far as they have ended: shorter ones only chose the finalists."""
        longest = max((run.budget.epochs for run in self.runs), default=0)
        pairs = zip(self.runs, self.results, strict=True)
        return [result for run, result in pairs if run.budget.epochs == longest and result is not None]

    @property
    def mean(self) -> Mapping[str, Any]:
        """The means over the decisive results."""
        return mean_result(self.decisive)


_Order: TypeAlias = Callable[[Sequence[Trial]], list[int]]
"""Maps finalists to their places, the best one first."""


@dataclass(frozen=True)
class Cell:
    """A row in a column, as far as it has been run.

    Attributes:
        row: The method.
        column: The network.
        trials: The settings on the validation split; none if there is nothing to choose.
        reference: The plain network there, if the choice depends on it.
        screening: The trials on other data that decide which settings are tried; none if all are.
        order: The settings that were tried with all seeds, best first; empty if not decided yet, or if every trial
            diverged.
        finals: The final runs, one per seed: on all training data, unless the table is about validation; with the
            chosen setting or, until there is one, with the best of short trials or the method's defaults; empty if
            every trial diverged.
        results: The results of those that have ended.
        trials_left: How many of the runs that the choice depends on have not ended.
    """

    row: Row
    column: Column
    trials: tuple[Trial, ...]
    reference: Trial | None
    screening: tuple[Trial, ...]
    order: tuple[int, ...]
    finals: tuple[Config, ...]
    results: tuple[Mapping[str, Any], ...]
    trials_left: int

    @property
    def decided(self) -> bool:
        """Whether all runs that the choice depends on have ended."""
        return self.trials_left == 0

    @property
    def chosen(self) -> Trial | None:
        """The chosen setting; None if none is chosen yet, or there is nothing to choose."""
        return self.trials[self.order[0]] if self.order else None

    @property
    def runner_up(self) -> Trial | None:
        """The setting that would have been chosen without that one."""
        return self.trials[self.order[1]] if len(self.order) > 1 else None

    @property
    def trial_runs(self) -> tuple[Config, ...]:
        """All runs on the validation split that the choice depends on, as far as they are known."""
        trials = (*self.trials, *(() if self.reference is None else (self.reference,)), *self.screening)
        return tuple(config for trial in trials for config in trial.runs)


class Book:
    """A table's runs in a folder of records.

    Args:
        protocol: The table.
        records: The folder of records.
        checksums: Data set -> its checksum; by default that of the existing records.

    Example:
        >>> from vbdrop.experiments.paper_tables import protocol_of
        >>> book = Book(protocol_of(4), Path("no/such/folder"))
        >>> cell = book.cell("vbd", "lenet-300-100")
        >>> len(cell.trials), cell.chosen, len(book.missing())
        (6, None, ...)
    """

    def __init__(
        self,
        protocol: Protocol,
        records: Path,
        checksums: Mapping[str, str] | None = None,
    ) -> None:
        self.protocol = protocol
        self.records = records
        self._all: list[tuple[Record, Config]] | None = None
        self._checksums = checksums if checksums is not None else recorded_checksums(records)

    def cell(self, row_key: str, column_key: str) -> Cell:
        """Return a cell from the current records.

        Raises:
            RecordError: A record is damaged.
        """
        row, column = self.protocol.row(row_key), self.protocol.column(column_key)
        return self._cell(row, column, self._best_other(column))

    def _cell(self, row: Row, column: Column, best: str | None) -> Cell:
        """A cell; ``best`` is the row that gets all seeds besides those that are replicated anyway."""
        if column.key in row.pooled:
            return replace(self._cell(self.protocol.row(row.pooled[column.key]), column, best), row=row)
        selecting = self.protocol.chooser(column)
        methods = settings(row, selecting.trials)
        trials, reference, screening, order, trials_left = self._selected(row, selecting, methods)
        finals: list[Config] = []
        if order or trials_left or not trials:
            likely = order or self._likely(row, selecting, methods)
            hyper = trials[likely[0]].hyper if likely else methods[0].settings() if not trials else row.fixed
            seeds = column.seeds if row.key == best else self.protocol.seeds_of(row, column)
            method = make_method(row.method, hyper)
            finals = [self._config(method, column, column.budget_of(method, seed)) for seed in range(seeds)]
        results = [result for config in finals if (result := self.result(config)) is not None]
        if row.choice in ("no worse", "closest in size") and not order:
            results = []  # the default setting was not chosen for a low error or a size
        tried = tuple(trials), reference, tuple(screening), tuple(order)
        return Cell(row, column, *tried, tuple(finals), tuple(results), trials_left)

    def _likely(self, row: Row, column: Column, methods: Sequence[Method]) -> list[int]:
        """What the short trials alone would choose, if they have ended; empty if they are not what is asked for."""
        if not column.finalists_in_full:
            return []
        return self._selected(row, replace(column, finalists_in_full=False), methods)[3]

    def _best_other(self, column: Column) -> str | None:
        """Of the paper's rows with one seed, the best one on validation data; None until all are decided.

        It gets all seeds of the column, so that the paper's method is compared with the best of the others.
        """
        if column.seeds == 1 or column.select_on or self.protocol.on_validation:
            return None
        number = self.protocol.number
        rows = [row for row in self.protocol.rows if not row.replicated and published_in(number, row.key, column.key)]
        cells = [self._cell(row, column, None) for row in rows]
        tried = [(cell, cell.chosen) for cell in cells if cell.chosen is not None]
        if not tried or not all(cell.decided for cell in cells):
            return None
        first, _ = tried[0]
        plain = None if first.reference is None else first.reference.mean.get("error")
        margin = None if plain is None else self.protocol.margin_of(first.row, column)
        means = [trial.mean for _, trial in tried]
        if margin is None:
            best = min(range(len(means)), key=lambda index: (means[index]["error"], means[index]["nll"]))
        else:
            best, *_ = ranked(means, kind=self.protocol.kind, margin=margin, reference=plain)
        return tried[best][0].row.key

    def _selected(
        self, row: Row, column: Column, methods: Sequence[Method]
    ) -> tuple[list[Trial], Trial | None, list[Trial], list[int], int]:
        """The trials of a row, those of `Cell.reference` and `Cell.screening`, the order, and how many runs remain.

        See :mod:`vbdrop.experiments.selection` and :mod:`vbdrop.experiments.search` for the rules.
        """
        if len(methods) == 1:
            return [], None, [], [], 0
        reference, screening = None, []
        if row.sized_as is not None:
            asked, order_of = self._asked_by_size(self.protocol.row(row.sized_as), column, methods)
        else:
            if self.protocol.margin_of(row, column) is not None:
                (plain,) = settings(self.protocol.reference, column.trials)
                reference = self._trial(plain, column, len(TRIAL_SEEDS))
            if column.screened_on is not None:
                screening = [self._trial(method, column.screened_on, 1) for method in methods]
            asked, order_of = self._asked_by_error(row, column, methods, reference, screening)
        trials = [self._trial(method, column, asked.seeds.get(index, 0)) for index, method in enumerate(methods)]
        needed = (*trials, *(() if reference is None else (reference,)), *screening)
        left = sum(trial.left for trial in needed) + asked.more
        finalists = asked.finalists
        order = [] if left else [finalists[index] for index in order_of([trials[index] for index in finalists])]
        return trials, reference, screening, order, left

    def _asked_by_error(
        self, row: Row, column: Column, methods: Sequence[Method], reference: Trial | None, screening: Sequence[Trial]
    ) -> tuple[NeededTrials, _Order]:
        """The trials that a choice by the error needs, and the order of the finalists."""
        margin = self.protocol.margin_of(row, column)
        error = None if reference is None or reference.left else reference.mean.get("error")

        def order_of(trials: Sequence[Trial]) -> list[int]:
            return ranked(
                [trial.mean for trial in trials],
                kind=self.protocol.kind,
                margin=None if error is None else margin,
                reference=error,
                simplest=[simplicity(make_method(row.method, trial.hyper), row) for trial in trials],
            )

        def worth_a_second_seed(tried: Sequence[int]) -> list[int]:
            trials = [self._trial(methods[index], column, 1) for index in tried]
            order = order_of(trials)
            by_error = margin is None and not column.finalists_in_full
            hopes = hopeful([trial.mean for trial in trials], order) if by_error else order
            return [tried[place] for place in hopes]

        def good(index: int, seeds: int) -> bool | None:
            trial = self._trial(methods[index], column, seeds)
            if trial.left or error is None or margin is None:
                return None
            return within(trial.mean, error + margin)

        if reference is not None and (reference.left or error is not None) and is_scale(methods):
            return along_a_scale(len(methods), good), order_of
        if any(trial.left for trial in screening):
            return unscreened(len(methods)), order_of
        better = sorted(order_of(screening)[: survivors(len(methods))]) if screening else range(len(methods))
        asked = halving(
            better,
            lambda index, seeds: not self._trial(methods[index], column, seeds).left,
            worth_a_second_seed,
        )
        return asked, order_of

    def _asked_by_size(self, model: Row, column: Column, methods: Sequence[Method]) -> tuple[NeededTrials, _Order]:
        """The trials that a choice of what is closest in size to another row needs, and the order of the finalists.

        The finalists are the weakest setting whose network is smaller than that of the other row, and the one before.
        """
        name, chosen = SIZES[self.protocol.kind], self._cell(model, column, None).chosen
        size = None if chosen is None else chosen.mean[name]

        def large_enough(index: int, seeds: int) -> bool | None:
            trial = self._trial(methods[index], column, seeds)
            if trial.left or size is None:
                return None
            return trial.mean["outcome"] == "finished" and bool(trial.mean[name] >= size)

        def order_of(trials: Sequence[Trial]) -> list[int]:
            return closest_in_size([trial.mean for trial in trials], name, 0.0 if size is None else size)

        return along_a_scale(len(methods), large_enough), order_of

    def _trial(self, method: Method, column: Column, runs: int) -> Trial:
        """The first so many runs of a setting: see :func:`_trial_budgets`."""
        budgets = _trial_budgets(method, column)[:runs]
        configs = tuple(self._config(method, column, budget, trial=True) for budget in budgets)
        return Trial(method.settings(), configs, tuple(map(self.result, configs)))

    def cells(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Cell]:
        """Return the cells of these rows and columns, or of all."""
        row_keys = rows or [row.key for row in self.protocol.rows]
        column_keys = columns or [column.key for column in self.protocol.columns]
        best = {key: self._best_other(self.protocol.column(key)) for key in column_keys}
        return [
            self._cell(self.protocol.row(row), self.protocol.column(column), best[column])
            for row in row_keys
            for column in column_keys
            if not (only := self.protocol.row(row).only) or column in only
        ]

    def missing(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Config]:
        """Return the unfinished runs that can be made now: trials first, each once."""
        cells = self.cells(rows, columns)
        trials = [config for cell in cells for config in cell.trial_runs]
        finals = [config for cell in cells if cell.decided for config in cell.finals]
        return self._unfinished((*trials, *finals))

    def _unfinished(self, runs: Iterable[Config]) -> list[Config]:
        unique = {config.id: config for config in runs}
        return [config for config in unique.values() if not record_of(config, self.records).finished]

    def without_trials(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Config]:
        """Return the unfinished runs on all training data, with the defaults if nothing is chosen yet."""
        return self._unfinished(config for cell in self.cells(rows, columns) for config in cell.finals)

    def expected(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> list[Config]:
        """Return all runs that are still to be made; with the method's defaults if nothing is chosen yet."""
        runs = {config.id: config for config in self.missing(rows, columns)}
        for cell in self.cells(rows, columns):
            if not cell.decided:
                later = [*self.trials_ahead(cell), *cell.finals]
                runs |= {f"{cell.row.key}/{config.id}": config for config in later if config.id not in runs}
        return list(runs.values())

    def trials_ahead(self, cell: Cell) -> list[Config]:
        """Return the unfinished trials of a cell, and stand-ins for further expected ones, to estimate their cost."""
        left = [config for config in cell.trial_runs if self.result(config) is None]
        known = {config.id for config in cell.trial_runs}
        column = self.protocol.chooser(cell.column)
        methods = [make_method(cell.row.method, trial.hyper) for trial in cell.trials]
        every = (
            self._config(method, column, _trial_budgets(method, column)[place], trial=True)
            for place in reversed(range(SEEDS))
            for method in methods
        )
        unknown = (config for config in every if config.id not in known)
        return [*left, *itertools.islice(unknown, cell.trials_left - len(left))]

    def recorded(self) -> list[tuple[Record, Config]]:
        """Return all records that can be read, with their settings."""
        if self._all is None:
            found = [(record, readable_config(record)) for record in all_records(self.records)]
            self._all = [(record, config) for record, config in found if config is not None]
        return self._all

    def result(self, config: Config) -> Mapping[str, Any] | None:
        """Return the result of a run; None if it has not ended.

        Raises:
            RecordError: Its record is damaged, or belongs to another run.
        """
        record = record_of(config, self.records)
        if not record.finished:
            return None
        result = record.result
        if result["run"] != config.id:
            raise RecordError(f"{record.folder} holds the result of another run, {result['run']}")
        return result

    def _config(self, method: Method, column: Column, budget: Budget, *, trial: bool = False) -> Config:
        held_out = trial or self.protocol.on_validation
        return resolve(
            method,
            model=column.model,
            model_args=column.model_args,
            data=column.data,
            checksum=self._checksums.get(column.data, ""),
            normalise=column.normalise,
            n_valid=column.n_valid if held_out else 0,
            n_train=column.n_train,
            budget=budget,
            arithmetic=ARITHMETIC,
            split=column.split,
        )


def _trial_budgets(method: Method, column: Column) -> tuple[Budget, ...]:
    """The budgets of a setting's trials: a short one for all settings, then that of the finalists."""
    first, second = (column.budget_of(method, seed, trial=True) for seed in TRIAL_SEEDS)
    return first, (column.budget_of(method, first.seed) if column.finalists_in_full else second)
