"""All missing runs of several tables, most informative first.

1. Runs that give a cell of the paper its first figure: the remaining trials, then the run with the chosen setting. What
   fills its cells at the least cost per cell comes first: trials that several cells share are worth more.
2. The same for cells that have a figure whose setting may change: its trials have not all been run.
3. Further seeds of those cells, cheapest first.
4. The same for rows that the paper does not have.
5. Ablations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vbdrop.experiments.config import Config
from vbdrop.experiments.published import published_in
from vbdrop.experiments.records import record_of
from vbdrop.experiments.table_runs import Book, Cell


@dataclass(frozen=True)
class QueuedRun:
    """A run that can be made now.

    Attributes:
        config: Its settings.
        table: The table that needs it.
        rank: Smaller ranks come first.
    """

    config: Config
    table: str
    rank: tuple[float, ...]


def queued(books: Sequence[Book], seconds: Callable[[Config], float]) -> list[QueuedRun]:
    """Return the unfinished runs that can be made now, in order, each once.

    Args:
        books: The tables.
        seconds: Returns the cost of a run.

    Example:
        >>> from pathlib import Path
        >>> from vbdrop.experiments.paper_tables import protocol_of
        >>> books = [Book(protocol_of(number), Path("no/such/folder")) for number in (3, 4)]
        >>> first = queued(books, lambda config: float(config.budget.epochs))[0]
        >>> first.table, first.config.method, first.config.n_valid
        ('Table 3', 'plain', 0)
    """
    cells = [(book, cell) for book in books for cell in book.cells()]
    shares = _shares(cells, seconds)
    runs = [run for book, cell in cells for run in _of_cell(book, cell, seconds, shares)]
    once: dict[str, QueuedRun] = {}
    for run in sorted(runs, key=lambda run: run.rank):
        once.setdefault(run.config.id, run)
    return list(once.values())


def _tier(book: Book, cell: Cell) -> int:
    number = book.protocol.number
    return 2 if number is None else int(published_in(number, cell.row.key, cell.column.key) is None)


def _grid(book: Book, cell: Cell) -> tuple[object, ...]:
    """What the cells that share a set of trials have in common, and no others."""
    first = cell.trial_runs[0]
    tried = (first.model, repr(first.model_args), first.data, repr(first.budget.epochs))
    in_full = book.protocol.chooser(cell.column).finalists_in_full
    return (_tier(book, cell), cell.row.method, *tried, in_full, *(repr(trial.hyper) for trial in cell.trials))


def _shares(cells: Sequence[tuple[Book, Cell]], seconds: Callable[[Config], float]) -> dict[tuple[object, ...], float]:
    """The cost per cell of the trials of each grid and of the runs that they lead to, for the cheapest of these."""
    trials: dict[tuple[object, ...], dict[str, float]] = {}
    finals: dict[tuple[object, ...], list[float]] = {}
    for book, cell in cells:
        if not cell.decided:
            key = _grid(book, cell)
            trials.setdefault(key, {}).update({config.id: seconds(config) for config in book.trials_ahead(cell)})
            finals.setdefault(key, []).append(seconds(cell.finals[0]))
    return {
        key: min(
            (sum(trials[key].values()) + sum(costs)) / len(costs)
            for costs in (sorted(found)[:count] for count in range(1, len(found) + 1))
        )
        for key, found in finals.items()
    }


def _of_cell(
    book: Book, cell: Cell, seconds: Callable[[Config], float], shares: Mapping[tuple[object, ...], float]
) -> Iterator[QueuedRun]:
    def left(runs: Sequence[Config]) -> list[tuple[float, Config]]:
        return [(seconds(config), config) for config in runs if not record_of(config, book.records).finished]

    tier, table = _tier(book, cell), book.protocol.name
    if not cell.decided:
        for cost, config in left(cell.trial_runs):
            yield QueuedRun(config, table, (tier, int(bool(cell.results)), shares[_grid(book, cell)], 0, cost))
        return
    for index, (cost, config) in enumerate(left(cell.finals)):
        yield QueuedRun(config, table, (tier, 2 * int(bool(cell.results) or index > 0), cost, 1, cost))
