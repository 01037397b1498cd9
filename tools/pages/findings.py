"""What the records say, in sentences that are written when the site is built, so that no figure is out of date."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from tools.results import ERROR_TITLES, ERRORS

from vbdrop.experiments import PROTOCOLS, Book, Column, Table, TableCell, ablations, all_records, protocol_of, table
from vbdrop.experiments.curves import at_one_size
from vbdrop.experiments.paired import LEVEL, t_quantile
from vbdrop.experiments.selection import knobs_of
from vbdrop.experiments.table_notes import OLDER
from vbdrop.experiments.table_runs import ARITHMETIC, Cell

OURS, RIVAL = "VBD", "Sparse VD"

SMALL = "lenet-300-100"
"""The network whose compression stands for the others at the top of the page."""

NONE_YET = "Nothing has been recorded yet.\n"


def findings(records: Path) -> str:
    """Summarise the results in Markdown, with one item per network that has been run.

    Args:
        records: The folder of records.
    """
    said = [*_compression(4, records), *_compression(5, records), *_regularisation(records), *equal_settings(records)]
    return "\n".join(f"- {each}" for each in said) + "\n" if said else NONE_YET


def headline(records: Path) -> str:
    """The main figures of VBD, VD and the plain network, in a sentence or two; empty without current runs.

    Args:
        records: The folder of records.
    """
    said = []
    for number, key in ERRORS.items():
        cells = {cell.row.key: cell for cell in table(Book(protocol_of(number), records), columns=[key]).cells}
        shown = [cells[row] for row in ("vbd", "vd", "none")]
        if all(cell.by_seed for cell in shown):
            errors, runs = ([form(cell) for cell in shown] for form in (_mean, _runs))
            said.append(f"{ERROR_TITLES[number]} {' / '.join(errors)} % (n = {' / '.join(runs)})")
    parts = [f"Test errors of VBD / VD / no dropout: {'; '.join(said)}."] if said else []
    whole = table(Book(protocol_of(4), records), columns=[SMALL])
    cells = [cell for cell in (whole.cell(row, SMALL) for row in ("vbd", "vd")) if cell.by_seed]
    if len(cells) > 1:
        sizes = [f"{cell.row.title} {_times(cell.ours.ratio.mean)} at {_error(cell)}" for cell in cells if cell.ours]
        parts.append(f"Fewer weights on {cells[0].column.title}: {'; '.join(sizes)}.")
    return " ".join(parts)


def _mean(cell: TableCell) -> str:
    return "–" if cell.ours is None else f"{cell.ours.error.mean:.2f}"


def _runs(cell: TableCell) -> str:
    return str(len(cell.by_seed))


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
        f"Of the {len(cells)} cells of the five tables, {len(filled)} have numbers: {chosen} with settings chosen on "
        f"validation data, or with nothing to choose, {by_default} with settings that may change (\\*), and {older} "
        f"from older runs ({OLDER}), which decide nothing.\n"
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
    name, error = cell.row.title, _error(cell)
    if cell.row.method == "plain":
        return f"The original network has {error}{_dagger(cell)}."
    ratio = cell.ours.ratio if number == 4 else cell.ours.compact_ratio
    paper = ""
    if cell.paper is not None and cell.paper.ratio is not None:
        paper = f"; the paper has {_times(cell.paper.ratio)} at {cell.paper.error:.2f} %"
    star = ", settings that may change" if cell.is_by_default else ""
    return f"{name}: {_times(ratio.mean)} fewer weights at {error}{_dagger(cell)}{star}{paper}."


def _at_equal_size(ours: TableCell, rival: TableCell) -> list[str]:
    """Compare the two methods when cut by their thresholds to one size, if they are close to it anyway.

    Nothing is said if only one of them has older runs: their arithmetic differs.
    """
    same = at_one_size(ours.curves, rival.curves)
    if same is None or ours.older != rival.older:
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
        if not any(cell.row.ours for cell in cells):
            continue
        current, older = ([cell for cell in cells if cell.older is is_older] for is_older in (False, True))
        sentences = _current(current, whole.protocol.column(key), records)
        if shown := _beside_the_paper(older):
            sentences.append(f"Older runs, which nothing here is compared with: {shown}.")
        if not older and len(cells) > 1:
            best = min(cells, key=lambda cell: cell.ours.error.mean if cell.ours else math.inf)
            sentences.append(f"The lowest of {len(cells)} methods is {best.row.title}, with {_error(best)}.")
        said.append(f"**{ERROR_TITLES[number]}, as a regulariser.** {' '.join(sentences)}")
    return said


def _current(cells: Sequence[TableCell], column: Column, records: Path) -> list[str]:
    """What the runs say that the table asks for: their numbers, their noise, and the paper's numbers."""
    if not cells:
        return []
    shown = _beside_the_paper(cells)
    sentences = [f"{shown}."] if shown else []
    if any(cell.ours is not None and cell.ours.error.n == 1 for cell in cells):
        sentences.append(seed_spread(column, records))
    methods = _published(cells)
    if len(cells) > 1 and methods:
        lower = sum(methods.values())
        sentences.append(f"Of the {len(methods)} rows of the paper with current runs, {lower} have a lower error here.")
    return sentences


def _beside_the_paper(cells: Sequence[TableCell]) -> str:
    """The numbers of VBD, VD and the plain network, if they are among these cells."""
    shown = {cell.row.key: cell for cell in cells}
    said = []
    for cell in (shown[key] for key in ("vbd", "vd", "none") if key in shown):
        paper = "" if cell.paper is None else f", the paper {cell.paper.error:.2f} %"
        said.append(f"{cell.row.title} {_error(cell)}{_dagger(cell)}{paper}")
    return "; ".join(said)


def _published(cells: Sequence[TableCell]) -> dict[str, bool]:
    """Each row of the paper -> whether all our runs of it have a lower error.

    SAdD and VAdD are one row there, and one method here.
    """
    both = sorted((cell for cell in cells if cell.paper is not None), key=lambda cell: cell.row.method)
    return {
        method: all(cell.ours.error.mean < cell.paper.error for cell in same if cell.ours and cell.paper)
        for method, same in groupby(both, key=lambda cell: cell.row.method)
    }


def seed_spread(column: Column, records: Path) -> str:
    """Say how much the seeds of one setting differ on a network, among final runs with today's arithmetic.

    Args:
        column: The network.
        records: The folder of records.
    """
    errors: dict[str, list[float]] = {}
    for record in filter(lambda each: each.finished, all_records(records)):
        config = record.config
        same = (config.model, config.data, config.arithmetic) == (column.model, column.data, ARITHMETIC)
        whole = (config.n_valid, config.budget.epochs) == (0, column.budget.epochs)
        if not same or not whole or not column.model_args.items() <= config.model_args.items():
            continue
        if (result := record.result)["outcome"] == "finished":
            unseeded = replace(config, budget=replace(config.budget, seed=0))
            errors.setdefault(unseeded.id, []).append(result["error"])
    several = [each for each in errors.values() if len(each) > 1]
    degrees = sum(len(each) - 1 for each in several)
    if not degrees:
        return "How much the seeds of one setting differ was not measured, so single runs rank nothing."
    sd = math.sqrt(math.fsum(math.fsum((x - statistics.fmean(each)) ** 2 for x in each) for each in several) / degrees)
    least = t_quantile((1 + LEVEL) / 2, degrees) * sd * math.sqrt(2)
    of_freedom = f"{degrees} degree{'' if degrees == 1 else 's'} of freedom"
    return (
        f"The seeds of one setting differ with a standard deviation of {sd:.2f} points on this network ({of_freedom}"
        f"), so two single runs that are less than {least:.2f} points apart rank nothing."
    )


def equal_settings(records: Path) -> list[str]:
    """Compare the trials of VD and VBD with the same setting and seed, for each weight of the KL.

    Args:
        records: The folder of records.
    """
    gaps: dict[float, list[float]] = {}
    for number in ERRORS:
        book = Book(protocol_of(number), records)
        for column in book.protocol.columns:
            if column.select_on is None:
                ours, theirs = (_trial_errors(book.cell(row, column.key)) for row in ("vbd", "vd"))
                for key in ours.keys() & theirs.keys():
                    gaps.setdefault(key[0], []).append(ours[key] - theirs[key])
    if not gaps:
        return []
    said = "; ".join(
        f"with a KL weight of {weight:g}, VBD has the lower validation error in {sum(gap < 0 for gap in found)} of "
        f"{len(found)} ({min(found):+.2f} to {max(found):+.2f} points)"
        for weight, found in sorted(gaps.items())
    )
    return [f"**VBD and VD at equal settings.** In pairs of trials with the same setting, epochs and seed: {said}."]


def _trial_errors(cell: Cell) -> dict[tuple[float, str], float]:
    """The weight of the KL, and the rest of what a trial has in common with another method's -> its error."""
    found = {}
    for trial in cell.trials:
        setting = {name: trial.hyper[name] for name in knobs_of(cell.row)}
        for config, result in zip(trial.runs, trial.results, strict=True):
            if result is not None and result["outcome"] == "finished":
                found[setting["kl_weight"], repr((setting, config.data, config.budget))] = result["error"]
    return found


def _dagger(cell: TableCell) -> str:
    """The mark of older runs."""
    return f" {OLDER}" if cell.older else ""


def _gaps(whole: Table) -> str:
    cells = whole.cells
    never = [cell for cell in cells if cell.ours is None and not cell.diverged]
    fewer = [cell for cell in cells if cell.ours is not None and cell.ours.error.n < cell.seeds]
    unchosen = [cell for cell in cells if cell.is_by_default]
    older = [cell for cell in cells if cell.older]
    groups = (
        (never, f"of {len(cells)} cells has not been run", f"of {len(cells)} cells have not been run"),
        (fewer, "has fewer seeds than planned", "have fewer seeds than planned"),
        (unchosen, "has settings that may change", "have settings that may change"),
        (older, "shows older runs", "show older runs"),
    )
    some = [f"{len(group)} {one if len(group) == 1 else several}" for group, one, several in groups if group]
    return f"{whole.protocol.name}: {'; '.join(some) or 'everything has been run'}."


def _error(cell: TableCell) -> str:
    if cell.ours is None:
        raise ValueError("`cell` must have figures.")
    error = cell.ours.error
    spread = "" if error.sd is None else f" ± {error.sd:.2f}"
    epochs = "" if cell.other_epochs is None else f", {cell.other_epochs} epochs"
    return f"{error.mean:.2f}{spread} % (n = {error.n}{epochs})"


def _times(ratio: float) -> str:
    return f"{ratio:.0f} times" if ratio >= 20 else f"{ratio:.1f} times"
