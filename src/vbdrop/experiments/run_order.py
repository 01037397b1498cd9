"""All missing runs of several tables, most informative first.

1. Runs that give a cell of the paper its first figure: the remaining trials, then the run with the chosen setting. The
   cheapest cell comes first.
2. Further seeds of those cells, cheapest first.
3. The same for rows that the paper does not have.
4. Ablations.
"""

from collections.abc import Callable, Iterator, Sequence
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
    runs = [run for book in books for cell in book.cells() for run in _of_cell(book, cell, seconds)]
    once: dict[str, QueuedRun] = {}
    for run in sorted(runs, key=lambda run: run.rank):
        once.setdefault(run.config.id, run)
    return list(once.values())


def _of_cell(book: Book, cell: Cell, seconds: Callable[[Config], float]) -> Iterator[QueuedRun]:
    def left(runs: Sequence[Config]) -> list[tuple[float, Config]]:
        return [(seconds(config), config) for config in runs if not record_of(config, book.records).finished]

    number = book.protocol.number
    tier = 2 if number is None else int(published_in(number, cell.row.key, cell.column.key) is None)
    trials, finals = left(cell.trial_runs), left(cell.finals)
    whole = sum(cost for cost, _ in trials) + (finals[0][0] if finals else 0.0)
    for cost, config in trials:
        yield QueuedRun(config, book.protocol.name, (tier, 0, whole, 0, cost))
    if cell.decided:
        for cost, config in finals:
            first = not cell.results and config is finals[0][1]
            yield QueuedRun(
                config, book.protocol.name, (tier, 0, whole, 1, cost) if first else (tier, 1, cost, 1, cost)
            )
