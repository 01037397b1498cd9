"""Error against compression, drawn from the records while the site is built: a line for each trained network.

A page has a comment such as ``<!-- frontier: 4 lenet-300-100 -->``: the table, and its column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from vbdrop.experiments import PROTOCOLS, Column, Protocol, Record, Row, all_records, published_in
from vbdrop.experiments.records import DETAILS
from vbdrop.methods import METHODS
from vbdrop.report.drawing import DASHES, MUTED, PAPER, SERIES, Canvas, log_ticks, style
from vbdrop.train.files import read_json

HEIGHT = 3.6
ROOM = 0.35
"""Points of error above the highest mark; a line that goes higher leaves the picture."""

MARKS = ("o", "D", "s", "^", "v", "P", "X", "*")


@dataclass(frozen=True)
class Point:
    """A network that was trained, or that the paper reports.

    Attributes:
        method: Its name in the picture.
        plain: Whether it is the original network.
        ratio: How many times fewer weights are left.
        error: The test error in percent.
        seed: Of the run; None for the paper's.
        setting: What was chosen for the run, such as ``kl_weight = 1``.
        curve: The same network at other thresholds, by ratio.
    """

    method: str
    plain: bool
    ratio: float
    error: float
    seed: int | None = None
    setting: str = ""
    curve: tuple[tuple[float, float], ...] = ()


def points_of(protocol: Protocol, column: Column, records: Path) -> list[Point]:
    """Return every run on test data that has ended, of this network, with the budget of the table.

    Args:
        protocol: The table.
        column: The network.
        records: The folder of records.
    """
    size = "compact_weights" if protocol.kind == "neurons" else "nonzero"
    found = []
    for record in all_records(records):
        if not record.finished:
            continue
        config = record.config
        row = _row(protocol, config.method, config.hyper)
        same = (column.model, column.data, 0, column.n_train, replace(column.budget, seed=config.budget.seed))
        if row is None or (config.model, config.data, config.n_valid, config.n_train, config.budget) != same:
            continue
        result = record.result
        if result["outcome"] == "finished" and result[size]:
            found.append(
                Point(
                    method=_name(row),
                    plain=row.method == "plain",
                    ratio=result["weights"] / result[size],
                    error=result["error"],
                    seed=config.budget.seed,
                    setting=_setting(row, config.hyper),
                    curve=_curve(record, size),
                )
            )
    return found


def published_points(protocol: Protocol, column: Column) -> list[Point]:
    """Return the paper's points, but for the original network.

    Args:
        protocol: The table.
        column: The network.
    """
    found = []
    for row in protocol.rows:
        paper = published_in(protocol.number, row.key, column.key)
        if paper is not None and paper.ratio is not None and row.method != "plain":
            found.append(Point(_name(row), plain=False, ratio=paper.ratio, error=paper.error))
    return found


def _row(protocol: Protocol, method: str, hyper: Mapping[str, Any]) -> Row | None:
    """The row that a run belongs to: of several with its method, the one that fixes most."""
    fitting = [
        row
        for row in protocol.rows
        if row.method == method and all(hyper.get(name) == value for name, value in row.fixed.items())
    ]
    return max(fitting, key=lambda row: len(row.fixed), default=None)


def _name(row: Row) -> str:
    return row.title if row.fixed or row.method == "plain" else METHODS[row.method].title


def _setting(row: Row, hyper: Mapping[str, Any]) -> str:
    method = METHODS[row.method]
    defaults = {field.name: field.default for field in fields(method)}
    said = [name for name in hyper if name in method.knobs or hyper[name] != defaults[name]]
    knobs = [name for name in said if name not in row.fixed]
    return ", ".join(f"{name} = {hyper[name]:g}" if isinstance(hyper[name], float) else f"{name} = {hyper[name]}"
                     for name in knobs)  # fmt: skip


def _curve(record: Record, size: str) -> tuple[tuple[float, float], ...]:
    path = record.folder / DETAILS
    sweep = (read_json(path)["sweep"] if path.is_file() else None) or []
    return tuple(sorted((point["weights"] / point[size], point["error"]) for point in sweep if point.get(size)))


def frontier_of(number: int, key: str, records: Path) -> str:
    """Draw error against compression of a network.

    Args:
        number: The table, 4 or 5.
        key: The column.
        records: The folder of records.

    Returns:
        A figure in HTML; a sentence, if no pruned network has been recorded yet.
    """
    protocol = PROTOCOLS[number]
    column = protocol.column(key)
    every = points_of(protocol, column, records)
    pruned = [point for point in every if not point.plain]
    if not pruned:
        return f"Of {column.title} no smaller network has been recorded: `{protocol.command} --run --column {key}`.\n"
    original = [point.error for point in every if point.plain]
    looks = _looks(protocol, pruned)
    pruned.sort(key=lambda point: (list(looks).index(point.method), point.setting, point.seed))
    label = f"Test error against compression, {column.title}. {'; '.join(map(_figure, pruned))}."
    with style():
        canvas = Canvas(HEIGHT)
        _draw(canvas.axes[0], pruned, published_points(protocol, column), original, looks)
        what = "weights between the units that are left" if protocol.kind == "neurons" else "weights"
        canvas.axes[0].set_xlabel(f"how many times fewer {what}")
        svg = canvas.svg(label)
    return f'<figure class="plot">{svg}<figcaption>{escape(_caption(column, pruned))}</figcaption></figure>\n'


def _looks(protocol: Protocol, pruned: Sequence[Point]) -> dict[str, tuple[str, str]]:
    """A colour and a mark for each method, the paper's own first; those without a line have the colour of the axes."""
    names = dict.fromkeys(_name(row) for row in sorted(protocol.rows, key=lambda row: not row.ours))
    lines = {_name(row) for row in protocol.rows if row.ours or row.key == "vd"}
    lines |= {point.method for point in pruned if point.curve}
    colours = dict(zip([name for name in names if name in lines], SERIES, strict=False))
    return {name: (colours.get(name, MUTED), mark) for name, mark in zip(names, cycle(MARKS), strict=False)}


def _draw(
    axes: Axes,
    pruned: Sequence[Point],
    paper: Sequence[Point],
    original: Sequence[float],
    looks: Mapping[str, tuple[str, str]],
) -> None:
    named = set()
    for point in pruned:
        colour, mark = looks[point.method]
        if point.curve:
            dashes = DASHES[(point.seed or 0) % len(DASHES)]
            axes.plot(*zip(*point.curve, strict=True), color=colour, linestyle=dashes, linewidth=1.2)
        label = None if point.method in named else point.method
        axes.plot(point.ratio, point.error, mark, color=colour, markersize=7, zorder=3, label=label)
        named.add(point.method)
    for point in paper:
        colour, mark = looks[point.method]
        label = None if point.method in named else f"{point.method}, the paper"
        axes.plot(point.ratio, point.error, mark, **_hollow(colour), label=label)
        named.add(point.method)
    if paper:
        axes.plot([], [], "o", **_hollow(MUTED), label="hollow: the paper")
    if original:
        error = sum(original) / len(original)
        axes.axhline(error, color=MUTED, linewidth=1, linestyle=(0, (2, 3)), label="the original")
    ratios = [point.ratio for point in (*pruned, *paper)]
    errors = [*(point.error for point in (*pruned, *paper)), *original]
    axes.set_xscale("log")
    log_ticks(axes, ratios, "x")
    axes.tick_params(which="minor", width=0)
    axes.set_xlim(min(ratios) / 1.2, max(ratios) * 2)
    axes.set_ylim(min(errors) - 0.1, max(errors) + ROOM)
    axes.set_ylabel("test error, %")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, borderaxespad=0.2, handlelength=1.6)


def _hollow(colour: str) -> dict[str, Any]:
    return {"markerfacecolor": PAPER, "markeredgecolor": colour, "markersize": 7}


def _figure(point: Point) -> str:
    digits = 0 if point.ratio >= 20 else 1
    return f"{point.method}: {point.error:.2f} % with {point.ratio:.{digits}f} times fewer weights"


def _caption(column: Column, pruned: Sequence[Point]) -> str:
    seeds: dict[str, list[int]] = {}
    for point in pruned:
        name = f"{point.method} ({point.setting})" if point.setting else point.method
        seeds.setdefault(name, []).append(point.seed or 0)
    together: dict[tuple[int, ...], list[str]] = {}
    for name, each in seeds.items():
        together.setdefault(tuple(sorted(each)), []).append(name)
    runs = "; ".join(
        f"n = {len(each)} (seed {', '.join(map(str, each))}) of {', '.join(names)}" for each, names in together.items()
    )
    return (
        f"{column.title} on {column.data.upper()}, {column.budget.epochs} epochs: to the right is smaller, further "
        "down is better. A filled mark is a trained network at the threshold that was set before it was trained. Its "
        "line is the same network cut at other thresholds, without training again: it describes the network, and no "
        f"threshold was chosen on the test data. Hollow marks are the paper's. Runs: {runs}."
    )
