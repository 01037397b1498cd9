"""The paper's method against another one in the same column, seed by seed.

In a table of errors the errors decide. Where networks also differ in size, one figure alone decides nothing:

1. if both are close in size, thresholds cut each pair to one size, and the errors there decide;
2. otherwise, if the interval of the difference of errors lies within a share of the column's margin (`EQUAL`), they are
   equal, and sizes decide;
3. otherwise, if the smaller one also has the lower mean error, the errors decide;
4. otherwise one is smaller and the other more often right: that is a trade-off, and nothing is decided.

Where the networks that two methods have chosen differ in size on the validation split by more than `ALIKE`, the table
may have another row of the rival, with the setting that matches ours in size there. That row then takes the rival's
place, and only rule 1 decides.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from vbdrop.experiments.curves import at_one_size
from vbdrop.experiments.paired import COUNTED, LEVEL, Paired, paired
from vbdrop.experiments.selection import SIZES
from vbdrop.experiments.tables import SeedRun, Table, TableCell
from vbdrop.sheets import Sheet

Basis: TypeAlias = Literal["error", "one size", "equal error", "dominance", "trade-off"]
"""What decides: the errors; those at one size; the sizes, at an equal error; the errors of networks of which one is
smaller and better; or nothing."""

EQUAL = 0.4
"""Two errors are equal if the interval of their difference lies within this share of the column's margin on both sides
of zero: 0.2 points where the margin is 0.5."""

ALIKE = 1.1
"""Two networks on the validation split have about the same size if one has at most this many times the weights of the
other."""

BY_ERROR: Basis = "error"
ONE_SIZE: Basis = "one size"
TRADE_OFF: Basis = "trade-off"

RIVALS = ("vd", "vd-low-error")
"""The rows with which the paper's own method is compared seed by seed: the second one for a row of low error."""


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
        equal: How many points apart two errors may be to count as equal; None in a table of errors.
    """

    where: str
    ours: str
    rival: str
    error: Paired
    size: Paired | None
    decisive: Paired | None
    basis: Basis
    seeds: int = 1
    equal: float | None = None


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
    where, seeds = f"{table.protocol.name}, {ours.column.title}", min(ours.seeds, rival.seeds)
    if table.protocol.kind == "error":
        return Contest(where, ours.row.title, rival.row.title, error, None, error, BY_ERROR, seeds)
    size = paired(_by_seed(ours, _log_ratio), _by_seed(rival, _log_ratio))
    equal = EQUAL * ours.column.margin
    same = _at_one_size(ours, rival, error.n)
    if same is not None or size is None or rival.row.sized_as == ours.row.key:
        decisive, basis = same, ONE_SIZE if same is not None else TRADE_OFF
    else:
        decisive, basis = _otherwise(error, size, equal)
    return Contest(where, ours.row.title, rival.row.title, error, size, decisive, basis, seeds, equal)


def _at_one_size(ours: TableCell, rival: TableCell, n: int) -> Paired | None:
    """The difference of the errors where thresholds cut each pair to one size; None unless that is so for all pairs."""
    same = {}
    others = {run.seed: run.curve for run in rival.by_seed}
    for run in ours.by_seed:
        found = at_one_size([run.curve], [others[run.seed]]) if run.seed in others else None
        if found is not None:
            same[run.seed] = found
    if len(same) < n:
        return None
    first, second = ({seed: getattr(each, name) for seed, each in same.items()} for name in ("first", "second"))
    return paired(first, second, COUNTED)


def _otherwise(error: Paired, size: Paired, equal: float) -> tuple[Paired | None, Basis]:
    """What decides between two networks whose sizes are too far apart for one size."""
    if error.low is not None and error.high is not None and error.low >= -equal and error.high <= equal:
        return _smaller_first(size), "equal error"
    if size.mean * error.mean < 0:
        return error, "dominance"
    return None, TRADE_OFF


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


def as_chosen(table: Table) -> list[Pair]:
    """Return each cell of the paper's method with that of VD, both as chosen; a table of ablations has none."""
    cells = {(cell.row.key, cell.column.key): cell for cell in table.cells}
    found = []
    for cell in table.cells:
        rival = cells.get((RIVALS[cell.row.key.endswith("low-error")], cell.column.key))
        if cell.row.ours and rival is not None and not table.protocol.on_validation:
            found.append((cell, rival))
    return found


def pairs(table: Table) -> list[Pair]:
    """Return each cell of the paper's method with the cell of VD that it is compared with: see :func:`alike`."""
    return [(ours, alike(table, ours, rival)) for ours, rival in as_chosen(table)]


def alike(table: Table, ours: TableCell, rival: TableCell) -> TableCell:
    """Return the rival or, if its network on the validation split is of another size, its row that matches ours.

    Test data play no part in this.

    Args:
        table: The table.
        ours: The cell of the paper's method.
        rival: The other cell, as chosen.
    """
    name = SIZES.get(table.protocol.kind)
    if name is None or ours.validation is None or rival.validation is None:
        return rival
    first, second = (max(cell.validation[name], 1) for cell in (ours, rival) if cell.validation is not None)
    if max(first, second) <= ALIKE * min(first, second):
        return rival
    wanted = (rival.row.method, ours.row.key, ours.column.key)
    matching = [cell for cell in table.cells if (cell.row.method, cell.row.sized_as, cell.column.key) == wanted]
    return next(iter(matching), rival)


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
            found[ours.runs, rival.runs] = each  # of two rows, keep the later one, that of high sparsity
    return list(found.values())


def versus(table: Table) -> Sheet | None:
    """Lay out the comparisons of the paper's method with VD; None if there are none yet."""
    counted = contests(table, pairs(table))
    others = [each for each in contests(table, as_chosen(table)) if each not in counted]
    rows = [
        (each.ours, each.rival, each.where.partition(", ")[2], str(each.error), size_difference(each), decides)
        for found, said in ((counted, _decided), (others, lambda _: "nothing: compared at the same size instead"))
        for each, decides in zip(found, map(said, found), strict=True)
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
        return f"size, at errors equal to within {each.equal:g} points"
    if each.basis == "dominance":
        return f"error: {each.ours if each.error.mean < 0 else each.rival} is smaller, too"
    return "error"
