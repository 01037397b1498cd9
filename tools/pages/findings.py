"""What the records say, in sentences that are written when the site is built, so that no figure is out of date."""

import math
from pathlib import Path

from tools.results import ERROR_TITLES, ERRORS

from vbdrop.experiments import PROTOCOLS, Book, Table, TableCell, ablations, protocol_of, table
from vbdrop.experiments.curves import at_one_size
from vbdrop.experiments.tables import Stat

OURS, RIVAL = "VBD", "Sparse VD"

NONE_YET = "Nothing has been recorded yet.\n"


def findings(records: Path) -> str:
    """Summarise the results in Markdown, with one item per network that has been run.

    Args:
        records: The folder of records.
    """
    said = [*_compression(4, records), *_compression(5, records), *_regularisation(records)]
    return "\n".join(f"- {each}" for each in said) + "\n" if said else NONE_YET


def status(records: Path) -> str:
    """Say how far the tables have been filled, in a sentence.

    Args:
        records: The folder of records.
    """
    cells = [cell for protocol in PROTOCOLS.values() for cell in table(Book(protocol, records)).cells]
    filled = [cell for cell in cells if cell.ours is not None]
    by_default, older = (sum(getattr(cell, name) for cell in filled) for name in ("is_by_default", "older"))
    chosen = len(filled) - by_default - older
    return (
        f"Of the {len(cells)} cells of the five tables, {len(filled)} have figures: {chosen} with settings that the "
        f"validation split chose or with nothing to choose, {by_default} with default settings, {older} (†) of older "
        "runs, with an arithmetic, budget or setting that the tables do not ask for today.\n"
    )


def missing(records: Path) -> str:
    """Say what has not been run, in Markdown, with one item per table.

    Args:
        records: The folder of records.
    """
    tables = [table(Book(protocol, records)) for protocol in (*PROTOCOLS.values(), ablations())]
    return "\n".join(f"- {_gaps(each)}" for each in tables) + "\n"


def _compression(number: int, records: Path) -> list[str]:
    whole = table(Book(protocol_of(number), records))
    said = []
    for column in whole.protocol.columns:
        cells = [cell for cell in whole.cells if cell.column.key == column.key and cell.ours is not None]
        once = {cell.runs: cell for cell in cells if cell.row.ours or cell.row.key in ("vd", "original")}
        in_order = sorted(once.values(), key=lambda cell: (not cell.row.ours, cell.row.method == "plain"))
        sentences = [_smaller(cell, number) for cell in in_order]
        if not any(cell.row.ours for cell in once.values()):
            continue
        if number == 4:
            sentences += _at_equal_size(*(whole.cell(key, column.key) for key in ("vbd", "vd")))
        said.append(f"**{column.title}, {whole.protocol.kind}.** {' '.join(sentences)}")
    return said


def _smaller(cell: TableCell, number: int) -> str:
    if cell.ours is None:
        raise ValueError("`cell` must have figures.")
    name, error = cell.row.title, _error(cell.ours.error)
    if cell.row.method == "plain":
        return f"The original network has {error}{_dagger(cell)}."
    ratio = cell.ours.ratio if number == 4 else cell.ours.compact_ratio
    paper = ""
    if cell.paper is not None and cell.paper.ratio is not None:
        paper = f"; the paper has {_times(cell.paper.ratio)} at {cell.paper.error:.2f} %"
    star = ", default settings" if cell.is_by_default else ""
    return f"{name}: {_times(ratio.mean)} fewer weights at {error}{_dagger(cell)}{star}{paper}."


def _at_equal_size(ours: TableCell, rival: TableCell) -> list[str]:
    """Compare the two methods when cut by their thresholds to one size, if they are close to it anyway."""
    same = at_one_size(ours.curves, rival.curves)
    if same is None:
        return []
    first, second = f"{same.first:.2f} %{_dagger(ours)}", f"{same.second:.2f} %{_dagger(rival)}"
    return [
        f"Cut by the threshold to {_times(same.ratio)} fewer weights, without training again, {OURS} has {first} and "
        f"{RIVAL[0].lower()}{RIVAL[1:]} {second} (n = {len(ours.curves)} and {len(rival.curves)})."
    ]


def _regularisation(records: Path) -> list[str]:
    said = []
    for number, key in ERRORS.items():
        whole = table(Book(protocol_of(number), records), columns=[key])
        cells = [cell for cell in whole.cells if cell.ours is not None]
        ours = [cell for cell in cells if cell.row.ours]
        if not ours:
            continue
        best = min(cells, key=lambda cell: cell.ours.error.mean if cell.ours else math.inf)
        shown = [*ours, *(cell for cell in cells if cell.row.key in ("vd", "none"))]
        if best not in shown:
            shown.append(best)
        figures = "; ".join(map(_beside_the_paper, shown))
        both = [cell for cell in cells if cell.paper is not None]
        lower = sum(cell.ours.error.mean < cell.paper.error for cell in both if cell.ours and cell.paper)
        sentences = [f"{figures}."]
        if len(cells) > 1:
            sentences.append(_lowest(cells, best))
            sentences.append(f"Of the {len(both)} that the paper has, {lower} have a lower error here than there.")
        said.append(f"**{ERROR_TITLES[number]}, as a regulariser.** {' '.join(sentences)}")
    return said


def _lowest(cells: list[TableCell], best: TableCell) -> str:
    """Name the lowest error, and say if it is not a ranking."""
    said = f"The lowest of {len(cells)} methods is {best.row.title}"
    reasons = ["older runs (†) are among them"] if any(cell.older for cell in cells) else []
    if any(cell.ours is not None and cell.ours.error.n == 1 for cell in cells):
        reasons.append("single runs are 0.1 points and more apart by their seed alone")
    return f"{said}; that is no ranking, since {' and '.join(reasons)}." if reasons else f"{said}."


def _beside_the_paper(cell: TableCell) -> str:
    paper = "" if cell.paper is None else f", the paper {cell.paper.error:.2f} %"
    return f"{cell.row.title} {_error(cell.ours.error) if cell.ours else ''}{_dagger(cell)}{paper}"


def _dagger(cell: TableCell) -> str:
    """The mark of older runs."""
    return " †" if cell.older else ""


def _gaps(whole: Table) -> str:
    cells = whole.cells
    never = [cell for cell in cells if cell.ours is None and not cell.diverged]
    fewer = [cell for cell in cells if cell.ours is not None and cell.ours.error.n < cell.seeds]
    unchosen = [cell for cell in cells if cell.is_by_default]
    older = [cell for cell in cells if cell.older]
    parts = [
        f"{len(never)} of {len(cells)} cells have not been run",
        f"{len(fewer)} have fewer seeds than planned",
        f"{len(unchosen)} have default settings, since their trials have not been run",
        f"{len(older)} show older runs",
    ]
    some = [part for part, group in zip(parts, (never, fewer, unchosen, older), strict=True) if group]
    return f"{whole.protocol.name}: {'; '.join(some) or 'everything has been run'}."


def _error(error: Stat) -> str:
    spread = "" if error.sd is None else f" ± {error.sd:.2f}"
    return f"{error.mean:.2f}{spread} % (n = {error.n})"


def _times(ratio: float) -> str:
    return f"{ratio:.0f} times" if ratio >= 20 else f"{ratio:.1f} times"
