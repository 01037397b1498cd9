"""A table as text, with the protocol above and the missing runs below."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from vbdrop.experiments.curves import at_one_size
from vbdrop.experiments.paired import COUNTED, paired
from vbdrop.experiments.protocol import Column
from vbdrop.experiments.selection import SIZES
from vbdrop.experiments.table_notes import (
    DEFAULT,
    EDGE,
    OLDER,
    columns_of,
    epochs_differ,
    mark_notes,
    number_notes,
    protocol_notes,
)
from vbdrop.experiments.tables import Stat, Table, TableCell
from vbdrop.experiments.versus import versus
from vbdrop.sheets import Sheet

NOT_RUN = "not run"
NONE = "–"
PAPER = "paper"
TO_BASE = "to base"
IS_BASE = " (base)"
"""How the title of a row ends that others change."""
BESIDE = (PAPER, TO_BASE)
"""Columns that belong to the one before them."""


def layout(table: Table) -> list[Sheet]:
    """Lay out a table: errors side by side, or one sheet per network, beside the paper's figures or those of a base.

    Example:
        >>> from pathlib import Path
        >>> from vbdrop.experiments.table_runs import Book
        >>> from vbdrop.experiments.paper_tables import protocol_of
        >>> from vbdrop.experiments.tables import table
        >>> layout(table(Book(protocol_of(3), Path("no/such/folder"))))[0].rows[0]
        ('No dropout', 'not run', '22.01')
    """
    if table.protocol.kind == "error":
        return [_errors(table)]
    if table.protocol.kind == "ablation":
        return [_changes(table, column) for column in columns_of(table)]
    return [_compression(table, column) for column in columns_of(table)]


def chosen(table: Table) -> Sheet | None:
    """Lay out the settings chosen on validation data; None if there are none yet."""
    rows, ours = [], []
    for cell in table.cells:
        if cell.choice is None or cell.column.select_on is not None or table.protocol.on_validation:
            continue
        setting = described(cell.choice, marked=cell.edges) or NONE
        second = described(cell.runner_up or {}) or NONE
        found, other = cell.validation, cell.runner_up_validation
        rows.append(
            (
                cell.row.title, cell.column.title, setting, _on_validation(cell, table), second,
                NONE if other is None or found is None else _apart(other, found, table), str(cell.trials),
            )
        )  # fmt: skip
        ours.append(cell.row.ours)
    if not rows:
        return None
    header = ("Method", "on", "chosen", "validation error %", "runner-up", "runner-up minus chosen", "settings tried")
    return Sheet("Chosen on the validation split", header, tuple(rows), tuple(ours))


def _on_validation(cell: TableCell, table: Table) -> str:
    """The mean error over the seeds, and the size if the choice depends on it."""
    result, size = cell.validation, SIZES.get(table.protocol.kind)
    if result is None:
        return NONE
    return f"{result['error']:.2f} (n={cell.validation_n})" + (f", {result[size]:,.0f} weights" if size else "")


def _apart(other: Mapping[str, Any], chosen: Mapping[str, Any], table: Table) -> str:
    """How far a setting is from the chosen one."""
    size = SIZES.get(table.protocol.kind)
    more = f", {100 * (other[size] / chosen[size] - 1):+.0f} % weights" if size and chosen[size] else ""
    return f"{other['error'] - chosen['error']:+.2f} points{more}"


def described(hyper: Mapping[str, Any], marked: Sequence[str] = ()) -> str:
    """Write settings in readable form.

    Args:
        hyper: The settings.
        marked: The names of those whose value is at an end of what was tried.

    Example:
        >>> described({"kl_weight": 2.0, "prior": "hierarchical"}, marked=["kl_weight"])
        'kl_weight = 2‡, prior = hierarchical'
    """
    return ", ".join(
        f"{name} = {f'{value:g}' if isinstance(value, float) else value}{EDGE if name in marked else ''}"
        for name, value in hyper.items()
    )


def notes(table: Table) -> list[str]:
    """Say how the numbers were made: see :mod:`vbdrop.experiments.table_notes`."""
    return [*number_notes(table), *protocol_notes(table), *mark_notes(table)]


def questions(table: Table) -> list[tuple[str, str]]:
    """Return the titles of the rows that have a question, and their questions."""
    return [(row.title, row.question) for (cell, *_) in _rows(table) if (row := cell.row).question]


def missing(table: Table, options: str = "") -> list[str]:
    """Return the commands that make the missing runs, each with a description; only one if nothing has been run.

    Args:
        table: The table.
        options: Further options of the commands, such as a folder of records.
    """
    whole = len(table.cells) == sum(len(row.only or table.protocol.columns) for row in table.protocol.rows)
    if whole and all(cell.ours is None and cell.command is not None for cell in table.cells):
        return [f"{_command(table.cells).partition(' --row')[0]}{options}"]
    said = []
    for cells in _rows(table):
        lacking = [cell for cell in cells if cell.command is not None]
        if lacking:
            command = _command(lacking)
            if len(lacking) > 1:
                command = command.partition(" --column")[0]
            said.append(f"{command}{options}  # {_left(lacking, named=len(cells) > 1)}")
    return said


def _command(cells: Sequence[TableCell]) -> str:
    """The command of the first cell that has one."""
    return next(cell.command for cell in cells if cell.command is not None)


def _left(cells: Sequence[TableCell], *, named: bool) -> str:
    """What is left to run, and on which networks."""
    where: dict[str, list[str]] = {}
    for cell in cells:
        runs = _number(cell.runs_left, "run")
        what = f"{_number(cell.trials_left, 'trial')}, then {runs}" if cell.trials_left else runs
        where.setdefault(what, []).append(cell.column.title)
    return "; ".join(f"{', '.join(titles)}: {what}" if named else what for what, titles in where.items())


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def sheets(table: Table) -> list[Sheet]:
    """Lay out everything that a table has: its figures, the comparisons seed by seed, and the settings.

    Example:
        >>> from pathlib import Path
        >>> from vbdrop.experiments.table_runs import Book
        >>> from vbdrop.experiments.paper_tables import protocol_of
        >>> from vbdrop.experiments.tables import table
        >>> [sheet.title for sheet in sheets(table(Book(protocol_of(4), Path("no/such/folder"))))]
        ['LeNet-300-100', 'LeNet-5-Caffe']
    """
    return [*layout(table), *(sheet for sheet in (versus(table), chosen(table)) if sheet is not None)]


def markdown(table: Table, *, commands: bool = True) -> str:
    """Write a table in Markdown.

    Args:
        table: The table.
        commands: Whether to end with the commands that make the missing runs.

    Example:
        >>> from pathlib import Path
        >>> from vbdrop.experiments.table_runs import Book
        >>> from vbdrop.experiments.paper_tables import protocol_of
        >>> from vbdrop.experiments.tables import table
        >>> print(markdown(table(Book(protocol_of(3), Path("no/such/folder")))).splitlines()[4])
        | No dropout | not run | 22.01 |
    """
    every = sheets(table)
    parts = [f"# {table.protocol.name}: {table.protocol.title}"]
    for index, sheet in enumerate(every):
        lines = ["| " + " | ".join(sheet.header) + " |", "|" + "---|" * len(sheet.header)]
        for row, ours in zip(sheet.rows, sheet.ours, strict=True):
            lines.append("| " + " | ".join((f"**{row[0]}**", *row[1:]) if ours else row) + " |")
        heading = f"## {sheet.title}\n\n" if index or table.protocol.kind != "error" else ""
        parts.append(heading + "\n".join(lines))
    if asked := questions(table):
        parts.append("\n".join(f"- *{title}*: {question}" for title, question in asked))
    # a star alone would begin a list
    parts.append("\n".join(f"- {note}".replace("- *", r"- \*") for note in notes(table)))
    if commands and (left := missing(table)):
        parts.append("Still to run:\n\n```console\n" + "\n".join(f"$ {command}" for command in left) + "\n```")
    return "\n\n".join(parts) + "\n"


def _rows(table: Table) -> list[tuple[TableCell, ...]]:
    return [tuple(cells) for _, cells in groupby(table.cells, key=lambda cell: cell.row.key)]


def _errors(table: Table) -> Sheet:
    header = ["Method"]
    for column in columns_of(table):
        epochs = f", {column.budget.epochs} epochs" if epochs_differ(table) else ""
        header += [f"{column.title}{epochs}", PAPER]
    rows, ours = [], []
    for cells in _rows(table):
        row = [cells[0].row.title]
        found = {cell.column.key: cell for cell in cells}
        for column in columns_of(table):
            cell = found.get(column.key)
            paper = None if cell is None else cell.paper
            row += [NONE if cell is None else _error(cell, with_n=True), f"{paper.error:.2f}" if paper else NONE]
        rows.append(tuple(row))
        ours.append(cells[0].row.ours)
    return Sheet(table.protocol.title, tuple(header), tuple(rows), tuple(ours))


def _compression(table: Table, column: Column) -> Sheet:
    by_weights = table.protocol.kind == "weights"
    what = "zeros by layer %" if by_weights else "units by layer"
    header = ("Method", "error %", PAPER, "fewer weights", PAPER, "n", what, PAPER)
    rows, ours = [], []
    for cells in _rows(table):
        cell = next(cell for cell in cells if cell.column.key == column.key)
        layers = ratio = n = NONE
        if cell.ours is not None:
            layers = _percents(cell.ours.sparsity) if by_weights else _units(cell.ours.units)
            ratio = _times(cell.ours.ratio if by_weights else cell.ours.compact_ratio)
            n = str(cell.ours.error.n)
        row = [cell.row.title, _error(cell), NONE, ratio, NONE, n, layers, NONE]
        if cell.paper is not None:
            row[2] = f"{cell.paper.error:.2f}"
            row[4] = NONE if cell.paper.ratio is None else f"{cell.paper.ratio:g}x"
            row[7] = _percents(cell.paper.sparsity, "g") if by_weights else _units(cell.paper.units)
        rows.append(tuple(row))
        ours.append(cell.row.ours)
    return Sheet(column.title, header, tuple(rows), tuple(ours))


def _changes(table: Table, column: Column) -> Sheet:
    """What was changed from the base, the result, and its difference from the base."""
    header = ("Change", "base", "error %", TO_BASE, "fewer weights", TO_BASE, "error at one size", "n", "settings")
    cells = {cell.row.key: cell for cell in table.cells if cell.column.key == column.key}
    rows = []
    for cell in cells.values():
        base = table.protocol.row(cell.row.base) if cell.row.base else None
        changed = {name: value for name, value in cell.row.fixed.items() if base and base.fixed.get(name) != value}
        more, fewer, at_one_size = _to_base(cell, cells.get(base.key) if base else None)
        ratio, n = (_times(cell.ours.ratio), str(cell.ours.error.n)) if cell.ours is not None else (NONE, NONE)
        name = base.title.removesuffix(IS_BASE) if base else NONE
        figures = (_error(cell), more, ratio, fewer, at_one_size, n)
        rows.append((cell.row.title, name, *figures, described(changed) or NONE))
    return Sheet(column.title, header, tuple(rows), tuple(cell.row.ours for cell in cells.values()))


def _to_base(cell: TableCell, base: TableCell | None) -> tuple[str, str, str]:
    """The differences in the error, in the ratio, and in the error at one size; none between old and new runs."""
    if cell.ours is None or base is None or base.ours is None or cell.older != base.older:
        return NONE, NONE, NONE
    same = at_one_size(cell.curves, base.curves)
    first, second = ({run.seed: run.error for run in each.by_seed} for each in (cell, base))
    pairs = paired(first, second, COUNTED)
    sure = "" if pairs is None or pairs.low is None else f" ({pairs.low:+.2f} to {pairs.high:+.2f})"
    return (
        f"{cell.ours.error.mean - base.ours.error.mean:+.2f}{sure}",
        _percent_more(cell.ours.ratio.mean, base.ours.ratio.mean),
        NONE if same is None else f"{same.first - same.second:+.2f} at {same.ratio:.0f}x",
    )


def _percent_more(ratio: float, base: float) -> str:
    return f"{100 * (ratio / base - 1):+.0f} %" if math.isfinite(ratio) and math.isfinite(base) else NONE


def _error(cell: TableCell, *, with_n: bool = False) -> str:
    if cell.ours is None:
        return "diverged" if cell.diverged else NOT_RUN
    error = cell.ours.error
    said = f"{error.mean:.2f}" + ("" if error.sd is None else f" ± {error.sd:.2f}")
    facts = [f"n={error.n}"] if with_n else []
    if cell.other_epochs is not None:
        facts.append(f"{cell.other_epochs} epochs")
    said += f" ({', '.join(facts)})" if facts else ""
    if cell.is_by_default or cell.older:
        said += OLDER if cell.older else DEFAULT
    return said + (f" ({cell.diverged} diverged)" if cell.diverged else "")


def _times(ratio: Stat) -> str:
    if math.isinf(ratio.mean):
        return "∞"
    digits = 0 if ratio.mean >= 20 else 1
    return f"{ratio.mean:.{digits}f}" + ("x" if ratio.sd is None else f" ± {ratio.sd:.{digits}f}x")


def _percents(layers: Sequence[float] | None, form: str = ".1f") -> str:
    return NONE if layers is None else "-".join(f"{share:{form}}" for share in layers)


def _units(layers: Sequence[float] | None) -> str:
    return NONE if layers is None else "-".join(f"{number:.0f}" for number in layers)
