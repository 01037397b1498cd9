"""Error against compression, drawn from the records when the site is built: one line per trained network.

A page has a comment such as ``<!-- frontier: 4 lenet-300-100 -->``: the table, and its column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes

from vbdrop.experiments import PROTOCOLS, Column, Config, Protocol, Row, all_records, published_in
from vbdrop.experiments.curves import Curve, threshold_curve
from vbdrop.experiments.table_notes import OLDER
from vbdrop.experiments.table_runs import ARITHMETIC
from vbdrop.experiments.table_text import described
from vbdrop.experiments.tables import stat
from vbdrop.methods import METHODS, Plain
from vbdrop.report.drawing import DASHES, MUTED, PAPER, SERIES, Canvas, log_ticks, style

SIZE = (4.4, 3.7)
"""In inches: small, so that the text is legible when the picture is as wide as a phone."""

RIVAL = "sparse-vd"
ROOM = 0.35
"""Points of error above the highest mark; a line that goes higher leaves the picture."""

MARKS = ("o", "D", "s", "^", "v", "P", "X", "*")

FADED = 0.35
"""The opacity of older runs."""


@dataclass(frozen=True)
class Point:
    """A network that was trained, or that the paper reports.

    Attributes:
        method: Its name in the picture.
        plain: Whether it is the original network.
        ratio: How many times fewer weights are left.
        error: The test error in percent.
        seed: The seed of the run; None for a point of the paper.
        setting: The settings chosen for the run, such as ``kl_weight = 1``.
        curve: The same network at other thresholds, by ratio.
        older: Whether it was made with compiled kernels, so that it decides nothing.
    """

    method: str
    plain: bool
    ratio: float
    error: float
    seed: int | None = None
    setting: str = ""
    curve: Curve = ()
    older: bool = False

    @property
    def dagger(self) -> str:
        """The mark of an older run."""
        return f" {OLDER}" if self.older else ""


def points_of(protocol: Protocol, column: Column, records: Path, *, on_validation: bool = False) -> list[Point]:
    """Return every finished run of this network with the budget of the table.

    Whether units were taken out during training is part of a run's setting, not of the budget.

    Args:
        protocol: The table.
        column: The network.
        records: The folder of records.
        on_validation: Whether to return runs on the validation split of the table instead of those on the test data.
    """
    n_valid = column.n_valid if on_validation else 0
    size: Literal["compact_weights", "nonzero"] = "compact_weights" if protocol.kind == "neurons" else "nonzero"
    found = []
    for record in all_records(records):
        if not record.finished:
            continue
        config = record.config
        row = _row(protocol, config.method, config.hyper)
        budget = replace(config.budget, seed=column.budget.seed, shrink_every=column.budget.shrink_every)
        budgets = [column.budget]
        if on_validation:  # trials have fewer epochs; older ones had all of them
            budgets.append(replace(column.budget_of(Plain(), column.budget.seed, trial=True), shrink_every=None))
        same = (column.model, column.data, column.normalise, n_valid, column.n_train)
        its = (config.model, config.data, config.normalise, config.n_valid, config.n_train)
        if row is None or its != same or budget not in budgets:
            continue
        result = record.result
        if result["outcome"] == "finished" and result[size]:
            found.append(
                Point(
                    method=_name(protocol, column, row),
                    plain=row.method == "plain",
                    ratio=result["weights"] / result[size],
                    error=result["error"],
                    seed=config.budget.seed,
                    setting=_setting(row, column, config),
                    curve=threshold_curve(record, size, larger=True),
                    older=config.arithmetic != ARITHMETIC,
                )
            )
    return found


def published_points(protocol: Protocol, column: Column) -> list[Point]:
    """Return the paper's points, except for the original network.

    Args:
        protocol: The table.
        column: The network.
    """
    found = []
    for row in protocol.rows:
        paper = published_in(protocol.number, row.key, column.key)
        if paper is not None and paper.ratio is not None and row.method != "plain":
            found.append(Point(_name(protocol, column, row), plain=False, ratio=paper.ratio, error=paper.error))
    return found


def _row(protocol: Protocol, method: str, hyper: Mapping[str, Any]) -> Row | None:
    """The row that a run belongs to; of several rows with its method, the one that fixes the most settings."""
    fitting = [
        row
        for row in protocol.rows
        if row.method == method and all(hyper.get(name) == value for name, value in row.fixed.items())
    ]
    return max(fitting, key=lambda row: len(row.fixed), default=None)


def _name(protocol: Protocol, column: Column, row: Row) -> str:
    """The name of a row in the picture; rows with one objective on this network share theirs."""
    first = protocol.row(row.pooled.get(column.key, row.key))
    same = [other.title for other in protocol.rows if other.pooled.get(column.key) == first.key]
    if same:
        return " = ".join([first.title, *same])
    return row.title if row.fixed or row.method == "plain" else METHODS[row.method].title


def _setting(row: Row, column: Column, config: Config) -> str:
    """The knobs of a run, and how it differs from the defaults and from the table."""
    method = METHODS[row.method]
    defaults = {field.name: field.default for field in fields(method)}
    fixed = () if column.key in row.pooled else row.fixed
    said = {
        name: value
        for name, value in config.hyper.items()
        if name not in fixed and (name in method.knobs or value != defaults[name])
    }
    if config.budget.shrink_every != column.budget_of(config.build_method(), config.budget.seed).shrink_every:
        said["shrink_every"] = config.budget.shrink_every
    return described(said)


def frontier_of(number: int, key: str, records: Path) -> str:
    """Draw error against compression of a network.

    Args:
        number: The table, 4 or 5.
        key: The column.
        records: The folder of records.

    Returns:
        A figure in HTML and a table of its runs in Markdown; a sentence, if no pruned network has been recorded yet.
    """
    protocol = PROTOCOLS[number]
    column = protocol.column(key)
    every = points_of(protocol, column, records)
    pruned = [point for point in every if not point.plain]
    if not pruned:
        return f"Of {column.title} no smaller network has been recorded: `{protocol.command} --run --column {key}`.\n"
    plain = [point for point in every if point.plain]
    original = [point for point in plain if not point.older] or plain
    looks = _looks(protocol, column, pruned)
    pruned.sort(key=lambda point: (list(looks).index(point.method), point.older, point.setting, point.seed))
    label = f"Test error against compression, {column.title}. {'; '.join(map(_figure, pruned))}."
    with style():
        canvas = Canvas(SIZE[1])
        canvas.figure.set_size_inches(SIZE)
        _draw(canvas.axes[0], pruned, published_points(protocol, column), original, looks)
        between = " between units" if protocol.kind == "neurons" else ""
        canvas.axes[0].set_xlabel(f"how many times fewer weights{between}")
        svg = canvas.svg(label)
    figure = f'<figure class="plot">{svg}<figcaption>{escape(_caption(column, pruned))}</figcaption></figure>'
    on_validation = points_of(protocol, column, records, on_validation=True)
    return f"{figure}\n\n{_settings(pruned, on_validation)}"


def _rank(row: Row) -> tuple[bool, bool]:
    """The paper's own method first, then its rival."""
    return not row.ours, row.method != RIVAL


def _looks(protocol: Protocol, column: Column, pruned: Sequence[Point]) -> dict[str, tuple[str, str]]:
    """A colour and a mark for each method, the paper's own first; those without a line have the colour of the axes."""
    names = dict.fromkeys(_name(protocol, column, row) for row in sorted(protocol.rows, key=_rank))
    lines = {_name(protocol, column, row) for row in protocol.rows if row.ours or row.method == RIVAL}
    lines |= {point.method for point in pruned if point.curve}
    colours = dict(zip([name for name in names if name in lines], SERIES, strict=False))
    return {name: (colours.get(name, MUTED), mark) for name, mark in zip(names, cycle(MARKS), strict=False)}


def _draw(
    axes: Axes,
    pruned: Sequence[Point],
    paper: Sequence[Point],
    original: Sequence[Point],
    looks: Mapping[str, tuple[str, str]],
) -> None:
    named = set()
    for point in pruned:
        if point.curve:
            dashes = DASHES[(point.seed or 0) % len(DASHES)]
            line = {"color": looks[point.method][0], "linestyle": dashes, "linewidth": 1.2}
            axes.plot(*zip(*point.curve, strict=True), **line, alpha=_opacity(point))
    for (method, _, _), runs in _by_setting(pruned).items():
        label = None if method in named else method
        _draw_runs(axes, runs, *looks[method], label)
        named.add(method)
    for point in paper:
        colour, mark = looks[point.method]
        label = None if point.method in named else point.method
        axes.plot(point.ratio, point.error, mark, **_hollow(colour), label=label)
        named.add(point.method)
    if paper:
        axes.plot([], [], "o", **_hollow(MUTED), label="hollow: the paper")
    if original:
        error = stat([point.error for point in original]).mean
        look = {"color": MUTED, "linewidth": 1, "linestyle": (0, (2, 3)), "alpha": _opacity(original[0])}
        axes.axhline(error, **look, label=f"the original{original[0].dagger}")
    ratios = [point.ratio for point in (*pruned, *paper)]
    errors = [point.error for point in (*pruned, *paper, *original)]
    axes.set_xscale("log")
    log_ticks(axes, ratios, "x")
    axes.tick_params(which="minor", width=0)
    axes.set_xlim(min(ratios) / 1.2, max(ratios) * 2)
    axes.set_ylim(min(errors) - 0.1, max(errors) + ROOM)
    axes.set_ylabel("test error, %")
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, borderaxespad=0.2, handlelength=1.6, columnspacing=1.2
    )


def _draw_runs(axes: Axes, runs: Sequence[Point], colour: str, mark: str, label: str | None) -> None:
    """Draw the runs of one setting: several as small marks, and their mean with bars of one standard deviation."""
    ratio, error = stat([point.ratio for point in runs]), stat([point.error for point in runs])
    alpha = _opacity(runs[0])
    if len(runs) > 1:
        places = zip(*((point.ratio, point.error) for point in runs), strict=True)
        axes.plot(*places, mark, color=colour, markersize=3, alpha=alpha)
    bars = {"xerr": ratio.sd, "yerr": error.sd, "capsize": 2, "elinewidth": 1, "alpha": alpha}
    axes.errorbar(ratio.mean, error.mean, fmt=mark, color=colour, markersize=7, zorder=3, label=label, **bars)


def _opacity(point: Point) -> float:
    return FADED if point.older else 1.0


def _hollow(colour: str) -> dict[str, Any]:
    return {"markerfacecolor": PAPER, "markeredgecolor": colour, "markersize": 7}


def _figure(point: Point) -> str:
    older = " (older run)" if point.older else ""
    return f"{point.method}: {point.error:.2f} % with {_ratio([point])[:-1]} times fewer weights{older}"


def _settings(on_test: Sequence[Point], on_validation: Sequence[Point]) -> str:
    """The runs of the figure in Markdown, one row per setting of a method, with its results on validation data."""
    test, validation = _by_setting(on_test), _by_setting(on_validation)
    lines = ["| Method | setting | test error % | fewer weights | n | on validation |", "|---|---|---|---|---|---|"]
    for kind, points in test.items():
        method, setting, _ = kind
        trials, dagger = validation.get(kind, []), points[0].dagger
        seen = f"{_error(trials)} %, {_ratio(trials)} (n = {len(trials)}){dagger}" if trials else "–"
        error = f"{_error(points)}{dagger}"
        lines.append(f"| {method} | {setting} | {error} | {_ratio(points)} | {len(points)} | {seen} |")
    return "\n".join(lines) + "\n"


def _by_setting(points: Sequence[Point]) -> dict[tuple[str, str, bool], list[Point]]:
    """Runs of one method and setting; older ones stay apart."""
    together: dict[tuple[str, str, bool], list[Point]] = {}
    for point in points:
        together.setdefault((point.method, point.setting, point.older), []).append(point)
    return together


def _error(points: Sequence[Point]) -> str:
    error = stat([point.error for point in points])
    return f"{error.mean:.2f}" + ("" if error.sd is None else f" ± {error.sd:.2f}")


def _ratio(points: Sequence[Point]) -> str:
    ratio = stat([point.ratio for point in points]).mean
    return f"{ratio:.{0 if ratio >= 20 else 1}f}x"


def _caption(column: Column, pruned: Sequence[Point]) -> str:
    lines = (
        " Its line is the same network cut at other thresholds, without training again: it describes the network, and "
        "no threshold was chosen on the test data."
    )
    older = f" Faded marks ({OLDER}) are older runs, made with compiled kernels; they decide nothing."
    return (
        f"{column.title} on {column.data.upper()}, {column.budget.epochs} epochs: to the right is smaller, further "
        "down is better. A filled mark is a trained network, with a threshold that was set before it was trained; "
        "where a setting was run with several seeds, it is their mean, with bars of one standard deviation each way, "
        "and the runs themselves are small marks."
        f"{lines if any(point.curve for point in pruned) else ''} Hollow marks are the paper's."
        f"{older if any(point.older for point in pruned) else ''}"
    )
