"""The protocol of a table: what is run, with one budget for all rows of a column."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

from vbdrop.train import Budget, Method

Kind: TypeAlias = Literal["error", "weights", "neurons", "ablation"]
"""What a table is about: only the error, the error and the remaining weights or neurons, or a changed setting."""

Choice: TypeAlias = Literal["lowest error", "no worse", "within the margin", "closest in size"]
"""How a row chooses its setting on the validation split: the lowest error; the smallest network whose error is not
above the plain network's, or not by more than the column's margin (if there is none, the lowest error); or the network
that is closest in size to the one that another row has chosen."""

TRIAL_SEEDS = (0, 1)
"""The seeds of a trial: see :mod:`vbdrop.experiments.search` for which settings are tried with the second."""

N_VALID = 5_000


@dataclass(frozen=True)
class Column:
    """A network on a data set, with its budget.

    Attributes:
        key: Its name on the command line.
        title: Its name in the table.
        model: A key of :data:`vbdrop.models.MODELS`.
        data: A key of :data:`vbdrop.data.DATASETS`.
        budget: The budget of a final run; the seed is set for each.
        trials: How many settings of a method are tried on the validation split, the same for every method.
        trial_epochs: The epochs of a trial; None for half of those of a final run.
        finalists_in_full: Whether the better half of the settings are tried again with the epochs of a final run, and
            these runs alone decide. This is for columns whose trials are so short that they would favour settings that
            learn fast; in the others, a second seed of the trials decides.
        seeds: The number of seeds (0, 1, 2, ...) of a replicated row; other rows have one.
        model_args: The arguments of the network.
        normalise: How pixels become inputs.
        select_on: The column on which the hyper-parameters are chosen; None for this one.
        screened_on: A column with the same network and other data, perhaps of another table: of the settings, only
            the better half of those tried there with one seed are tried here. None to try all of them.
        n_valid: How many training examples are held out for this choice.
        split: How they are chosen, a key of :data:`vbdrop.data.SPLITS`.
        n_train: The number of training examples; None for all.
        shrink_every: Epochs between removals of units that stayed dead, for methods that support it, which makes
            training cheaper; None for never.
        margin: How many points above the plain network's validation error a smaller network may be.
    """

    key: str
    title: str
    model: str
    data: str
    budget: Budget
    trials: int = 8
    trial_epochs: int | None = None
    finalists_in_full: bool = False
    seeds: int = 1
    model_args: Mapping[str, Any] = field(default_factory=dict)
    normalise: str = "unit"
    select_on: str | None = None
    screened_on: "Column | None" = None
    n_valid: int = N_VALID
    split: str = "image"
    n_train: int | None = None
    shrink_every: int | None = None
    margin: float = 0.0

    def budget_of(self, method: Method, seed: int, *, trial: bool = False) -> Budget:
        """Return the budget of a run in this column.

        Args:
            method: The method.
            seed: The seed.
            trial: Whether it is a trial, which has fewer epochs.

        Example:
            >>> from vbdrop.experiments.paper_tables import protocol_of
            >>> from vbdrop.methods import Plain, VBDGates
            >>> column = protocol_of(5).column("lenet-5")
            >>> [column.budget_of(method, seed=1).shrink_every for method in (VBDGates(), Plain())]
            [2, None]
            >>> column.budget_of(Plain(), seed=1).epochs, column.budget_of(Plain(), seed=1, trial=True).epochs
            (60, 30)
        """
        epochs = (self.trial_epochs or max(1, self.budget.epochs // 2)) if trial else self.budget.epochs
        shrink_every = self.shrink_every if method.shrinks else None
        return replace(self.budget, epochs=epochs, seed=seed, shrink_every=shrink_every)


@dataclass(frozen=True)
class Row:
    """A method, and how its hyper-parameters are chosen.

    Attributes:
        key: Its name on the command line, and in the published tables.
        title: Its name in the table.
        method: A key of :data:`vbdrop.methods.METHODS`.
        fixed: Hyper-parameters that are not chosen.
        knobs: Hyper-parameter -> the values that are tried; None for those of the method.
        choice: How it chooses.
        sized_as: The key of the row whose network it is to match, if it chooses what is closest in size.
        ours: Whether it is the paper's own method.
        replicated: Whether it is run with all seeds of a column.
        pooled: Column -> the row that shares its runs with this row there, since the two methods are the same.
        base: The key of the row whose setting it changes; None in the paper's tables.
        question: The question that the change answers; empty in the paper's tables.
        only: The keys of the columns that it has; empty for all.
    """

    key: str
    title: str
    method: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    knobs: Mapping[str, tuple[Any, ...]] | None = None
    choice: Choice = "lowest error"
    sized_as: str | None = None
    ours: bool = False
    replicated: bool = False
    pooled: Mapping[str, str] = field(default_factory=dict)
    base: str | None = None
    question: str = ""
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Protocol:
    """A table.

    Attributes:
        number: Its number in the paper; None for our own tables.
        title: What it shows.
        kind: What it is about.
        columns: Its networks.
        rows: Its methods.
        quick: Whether it is the small version, whose figures mean nothing.
        on_validation: Whether its figures are of the validation split, so that the test data play no part in them.
        remark: How the paper's runs differ from ours, as a sentence; empty if they do not.
    """

    number: int | None
    title: str
    kind: Kind
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    quick: bool = False
    on_validation: bool = False
    remark: str = ""

    @property
    def name(self) -> str:
        """The name of the table."""
        return "Ablations" if self.number is None else f"Table {self.number}"

    @property
    def command(self) -> str:
        """The command that prints it."""
        return "vbdrop ablation" if self.number is None else f"vbdrop table {self.number}"

    def column(self, key: str) -> Column:
        """Return a column.

        Raises:
            ValueError: There is none of this name.
        """
        return _named("column", self.columns, key, self.name)

    def row(self, key: str) -> Row:
        """Return a row.

        Raises:
            ValueError: There is none of this name.
        """
        return _named("row", self.rows, key, self.name)

    def chooser(self, column: Column) -> Column:
        """Return the column on which the settings for a column are chosen: itself, or the one that it names.

        If that one has other epochs, its finalists are not tried with them, but with the second seed of a trial.

        Example:
            >>> from vbdrop.experiments.paper_tables import protocol_of
            >>> table = protocol_of(2)
            >>> [(each.key, each.finalists_in_full) for each in map(table.chooser, table.columns)]
            [('1', True), ('1', False), ('1', False)]
        """
        if column.select_on is None:
            return column
        chooser = self.column(column.select_on)
        in_full = chooser.finalists_in_full and chooser.budget == column.budget
        return replace(chooser, finalists_in_full=in_full)

    def margin_of(self, row: Row, column: Column) -> float | None:
        """Return how many points above the plain network's a row's validation error may be; None if that plays no part.

        Example:
            >>> from vbdrop.experiments.paper_tables import protocol_of
            >>> table = protocol_of(4)
            >>> keys = ("lenet-300-100", "lenet-5")
            >>> [table.margin_of(table.row("vbd"), table.column(key)) for key in keys]
            [0.5, 0.2]
            >>> [table.margin_of(table.row("vbd-low-error"), table.column(key)) for key in keys]
            [0.0, 0.0]
        """
        margins = {"no worse": 0.0, "within the margin": column.margin}
        return margins.get(row.choice)

    def with_seeds(self, seeds: int) -> "Protocol":
        """Return the same table with another number of seeds, in every column and row."""
        if seeds < 1:
            raise ValueError(f"`seeds` must be a number of runs, an int >= 1; got {seeds!r}.")
        columns = tuple(replace(column, seeds=seeds) for column in self.columns)
        return replace(self, columns=columns, rows=tuple(replace(row, replicated=True) for row in self.rows))

    def seeds_of(self, row: Row, column: Column) -> int:
        """Return how many seeds a cell has: those of its column if its row is replicated, otherwise one."""
        return column.seeds if row.replicated else 1

    def small(self) -> "Protocol":
        """Return a small version, to see whether everything works.

        It has every row and column, on 2,000 of the embedded digits, for four epochs (two for convolutions), with two
        trials and one seed.
        """
        columns = []
        for column in self.columns:
            epochs = 2 if column.model in ("lenet-5", "kingma-cnn") else 4
            budget = replace(column.budget, epochs=epochs, evaluate_every=epochs)
            fewer = replace(column, seeds=1, budget=budget, trials=min(column.trials, 2), trial_epochs=None)
            few = replace(fewer, data="digits", n_valid=500, n_train=2_000, split="image")
            columns.append(replace(few, screened_on=None, finalists_in_full=False))
        return replace(self, columns=tuple(columns), quick=True)

    @property
    def reference(self) -> Row:
        """The row of the plain network, against which margins are measured."""
        return next(row for row in self.rows if row.method == "plain")


_Entry = TypeVar("_Entry", Column, Row)


def _named(what: str, entries: tuple[_Entry, ...], key: str, table: str) -> _Entry:
    for entry in entries:
        if entry.key == key:
            return entry
    known = ", ".join(entry.key for entry in entries)
    raise ValueError(f"`{what}` of {table} must be one of {known}; got {key!r}.")
