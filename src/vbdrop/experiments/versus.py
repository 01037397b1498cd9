"""The paper's method against another one in the same column, seed by seed.

In a table of errors the errors decide. Where networks also differ in size, one figure alone decides nothing:

1. if both are close in size, thresholds cut each pair to one size, and the errors there decide;
2. otherwise, if the interval of the difference of errors lies within `EQUAL` points, they are equal, and sizes decide;
3. otherwise, if one of them is smaller and also has the lower mean error, the errors decide;
4. otherwise one is smaller and the other more often right: that is a trade-off, and nothing is decided.

For a trade-off, the table has a row with another setting of the rival, chosen on validation data for its size alone
(`SAME_SIZE`); once it has been run, it takes the rival's place.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from vbdrop.experiments.curves import at_one_size
from vbdrop.experiments.paired import COUNTED, LEVEL, Paired, paired
from vbdrop.experiments.tables import SeedRun, Table, TableCell
from vbdrop.sheets import Sheet

Basis: TypeAlias = Literal["error", "one size", "equal error", "dominance", "trade-off"]
"""What decides: the errors; those at one size; the sizes, at an equal error; the errors of networks of which one is
smaller and better; or nothing."""

EQUAL = 0.2
"""Two errors are equal if the interval of their difference lies within this many points on both sides of zero."""

BY_ERROR: Basis = "error"

RIVALS = ("vd", "vd-low-error")
"""The rows with which the paper's own method is compared seed by seed: the second one for a row of low error."""

SAME_SIZE = "-same-size"
"""The end of the key of a row that matches the paper's method in size, after the key of the rival."""


@dataclass(frozen=True)
class Contest:
    """Two methods on one network. Differences are ours minus the rival's, so that a negative error is in our favour.

    Attributes:
        where: The table and the network.
        ours: The title of our row.
        rival: The title of the other.
        error: The difference of the errors in points, each network at its own size.
        size: The difference of the logarithms of how many times fewer weights remain; None in a table of errors.
        decisive: The difference that decides, negative in our favour: of errors or, at an equal error, of the
            logarithms of the sizes; None for a trade-off.
        basis: What decides.
        seeds: How many pairs of runs the table asks for.
    """

    where: str
    ours: str
    rival: str
    error: Paired
    size: Paired | None
    decisive: Paired | None
    basis: Basis
    seeds: int = 1


def contest(table: Table, ours: TableCell, rival: TableCell) -> Contest | None:
    """Compare two cells of a column over the seeds that both have; None if they share none.

    Only runs that the table asks for count, with settings that were chosen alike.

    Args:
        table: The table.
        ours: The cell of the paper's method.
        rival: The other cell.
    """
    error = paired(_by_seed(ours, _error), _by_seed(rival, _error), COUNTED)
    if error is None:
        return None
    size = None
    if table.protocol.kind != "error":
        size = paired(_by_seed(ours, _log_ratio), _by_seed(rival, _log_ratio))
    decisive, basis = (error, BY_ERROR) if size is None else _decisive(ours, rival, error, size)
    where = f"{table.protocol.name}, {ours.column.title}"
    return Contest(where, ours.row.title, rival.row.title, error, size, decisive, basis, min(ours.seeds, rival.seeds))


def _decisive(ours: TableCell, rival: TableCell, error: Paired, size: Paired) -> tuple[Paired | None, Basis]:
    same = {}
    others = {run.seed: run.curve for run in rival.by_seed}
    for run in ours.by_seed:
        found = at_one_size([run.curve], [others[run.seed]]) if run.seed in others else None
        if found is not None:
            same[run.seed] = found
    if len(same) == error.n:
        first, second = ({seed: getattr(each, name) for seed, each in same.items()} for name in ("first", "second"))
        return paired(first, second, COUNTED), "one size"
    if error.low is not None and error.high is not None and error.low >= -EQUAL and error.high <= EQUAL:
        return _smaller_first(size), "equal error"
    if size.mean * error.mean < 0:
        return error, "dominance"
    return None, "trade-off"


def _smaller_first(size: Paired) -> Paired:
    """The difference of the logarithms of the sizes, from that of how many times fewer weights remain."""
    low, high = (None if end is None else -end for end in (size.high, size.low))
    return replace(size, mean=-size.mean, low=low, high=high)


def _by_seed(cell: TableCell, figure: Callable[[SeedRun], float]) -> dict[int, float]:
    return {run.seed: figure(run) for run in cell.by_seed}


def _error(run: SeedRun) -> float:
    return run.error


def _log_ratio(run: SeedRun) -> float:
    return math.log(run.ratio)


Pair: TypeAlias = tuple[TableCell, TableCell]
"""A cell of the paper's method, and the one that it is compared with."""


def pairs(table: Table) -> list[Pair]:
    """Return each cell of the paper's method with that of VD; a table of ablations has none."""
    cells = {(cell.row.key, cell.column.key): cell for cell in table.cells}
    found = []
    for cell in table.cells:
        rival = cells.get((RIVALS[cell.row.key.endswith("low-error")], cell.column.key))
        if cell.row.ours and rival is not None and not table.protocol.on_validation:
            found.append((cell, rival))
    return found


def contests(table: Table, compared: Iterable[Pair]) -> list[Contest]:
    """Compare pairs of cells that have both been run; the same runs only once, even if two rows have chosen them.

    Example:
        >>> from pathlib import Path
        >>> from vbdrop.experiments import Book, protocol_of, table
        >>> whole = table(Book(protocol_of(3), Path("no/such/folder")))
        >>> contests(whole, pairs(whole))
        []
    """
    found: dict[tuple[object, ...], Contest] = {}
    for ours, rival in compared:
        each = contest(table, ours, rival)
        if each is not None:
            found[ours.runs, rival.runs] = _resized(table, ours, rival, each)  # of two rows, keep the later one
    return list(found.values())


def _resized(table: Table, ours: TableCell, rival: TableCell, found: Contest) -> Contest:
    """The comparison with the row that matches ours in size, if the other one is a trade-off and this one decides."""
    key = rival.row.key + SAME_SIZE
    sized = [cell for cell in table.cells if (cell.row.key, cell.column.key) == (key, ours.column.key)]
    if found.basis != "trade-off" or not sized or sized[0].row.sized_as != ours.row.key:
        return found
    other = contest(table, ours, sized[0])
    return found if other is None or other.decisive is None or other.error.n < found.error.n else other


def versus(table: Table) -> Sheet | None:
    """Lay out the comparisons of the paper's method with VD; None if there are none yet."""
    rows = [
        (each.ours, each.rival, each.where.partition(", ")[2], str(each.error), size_difference(each), _decided(each))
        for each in contests(table, pairs(table))
    ]
    if not rows:
        return None
    level = f"{100 * LEVEL:.0f} %"
    header = ("ours", "against", "on", f"error, points ({level})", f"size ({level})", "decides")
    return Sheet("Seed by seed", header, tuple(rows), (False,) * len(rows))


def size_difference(each: Contest) -> str:
    """Say how much larger or smaller our network is, in percent: from the logarithms of ratios."""
    if each.size is None:
        return "–"

    def percent(log: float) -> str:
        return f"{100 * math.expm1(-log):+.0f} %" if math.isfinite(log) else "–"

    if each.size.low is None or each.size.high is None:
        return percent(each.size.mean)
    return f"{percent(each.size.mean)}, {percent(each.size.high)} to {percent(each.size.low)}"


def _decided(each: Contest) -> str:
    if each.decisive is None:
        return "a trade-off: nothing"
    if each.basis == "one size":
        return f"error at one size: {each.decisive}"
    if each.basis == "equal error":
        return f"size, at errors equal to within {EQUAL:g} points"
    if each.basis == "dominance":
        return f"error: {each.ours if each.error.mean < 0 else each.rival} is smaller, too"
    return "error"
