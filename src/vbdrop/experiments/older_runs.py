"""Recorded runs that fill no cell: they are shown where a table's own runs have not been made yet."""

from dataclasses import replace

from vbdrop.experiments.config import Config, make_method
from vbdrop.experiments.protocol import Row
from vbdrop.experiments.records import Record
from vbdrop.experiments.selection import knobs_of, simplicity
from vbdrop.experiments.table_runs import ARITHMETIC, Book, Cell


def older_runs(book: Book, cell: Cell) -> list[Record]:
    """Return recorded runs of a cell's method and network that are not what the table currently asks for.

    They have another arithmetic, budget or setting. Of several kinds, the one with the most seeds is taken, then the
    one that differs least from the method's defaults; their figures play no part. There are none for a row about low
    error or a size, since the setting that distinguishes it was not chosen.

    Args:
        book: The table.
        cell: One of its cells.

    Example:
        >>> from pathlib import Path
        >>> from vbdrop.experiments.paper_tables import protocol_of
        >>> book = Book(protocol_of(4), Path("no/such/folder"))
        >>> older_runs(book, book.cell("vbd", "lenet-5"))
        []
    """
    if cell.row.choice in ("no worse", "closest in size") or book.protocol.quick:
        return []
    row = book.protocol.row(cell.row.pooled.get(cell.column.key, cell.row.key))
    fixed = _fixed(row)
    kinds: dict[str, list[tuple[Config, Record]]] = {}
    for record, config in book.recorded():
        if _is_older(book, cell, config) and fixed.items() <= config.hyper.items() and record.finished:
            unseeded = replace(config, budget=replace(config.budget, seed=0))
            kinds.setdefault(unseeded.id, []).append((config, record))

    def rank(kind: list[tuple[Config, Record]]) -> tuple[int, int, str]:
        config = kind[0][0]
        return -len(kind), simplicity(make_method(config.method, config.hyper)), config.id

    best = min(kinds.values(), key=rank, default=[])
    return [record for _, record in best if record.result["outcome"] == "finished"]


def _is_older(book: Book, cell: Cell, config: Config) -> bool:
    column = cell.column
    on_validation = config.n_valid > 0
    return (
        (config.method, config.model, config.data) == (cell.row.method, column.model, column.data)
        and all(config.model_args.get(name) == value for name, value in column.model_args.items())
        and config.normalise == column.normalise
        and config.n_train is None
        and on_validation == book.protocol.on_validation
        and config.arithmetic != ARITHMETIC
    )


def _fixed(row: Row) -> dict[str, object]:
    """The settings by which a run belongs to this row: what it fixes, and strings that it leaves at their defaults.

    A string selects a variant of the method, not its strength: only ``weighting`` separates VIBNet from VBD on gates.
    """
    knobs = knobs_of(row)
    every = make_method(row.method, row.fixed).settings()
    return {
        name: list(value) if isinstance(value, tuple) else value  # as a record stores it
        for name, value in every.items()
        if name in row.fixed or (isinstance(value, str) and name not in knobs)
    }
