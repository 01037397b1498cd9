"""Error against size: one run at all thresholds, and the frontier of several runs."""

from collections.abc import Sequence
from typing import Any

from vbdrop.report.blocks import Block, Figure, Note, Slider
from vbdrop.report.drawing import DASHES, MUTED, SERIES, Canvas, legend, log_ticks
from vbdrop.report.reading import Run
from vbdrop.report.wording import remedy, short, size, thousands, times

LOWEST = 0.01
"""The lowest error, in percent, that a logarithmic scale shows."""


def sizes(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Draw the frontier of all runs, if there are several, and the curve with the slider for each run."""
    blocks: list[Block] = []
    if len(runs) > 1:
        blocks.append(_frontier(runs, labels))
    for run, label in zip(runs, labels, strict=True):
        blocks.append(_curve(run, label if len(runs) > 1 else ""))
    return blocks


def _curve(run: Run, heading: str) -> Block:
    if run.diverged:
        return Note("The run diverged.", heading=heading)
    if run.result["rates"] is None:
        return Note(f"{run.config['method']} has no threshold to move.", heading=heading)
    if run.details is None:
        text = "This record does not have the errors at other thresholds (there is no details.json). To make them:"
        return Note(text, remedy(run, "details"), heading)
    if run.details["sweep"] is None:
        return Note(
            f"{run.config['method']} learns rates and removes nothing, so there is no threshold.", heading=heading
        )
    points = [point for point in run.details["sweep"] if point["nonzero"]]
    start = next((index for index, point in enumerate(points) if point["own"]), None)
    if start is None:
        return Note("At every threshold that was tried, nothing is left of this network.", heading=heading)
    canvas = Canvas(3.0)
    axes = canvas.axes[0]
    curve = [(point["nonzero"], max(point["error"], LOWEST)) for point in points]
    axes.plot(*zip(*curve, strict=True), ".-", color=SERIES[0], markersize=5)
    _scale(canvas, curve)
    places = canvas.places(axes, curve)
    own = points[start]
    first, last = points[0]["threshold"], points[-1]["threshold"]
    label = f"Error against remaining weights, at thresholds from {first:g} to {last:g}"
    svg = canvas.svg(label)
    x, y = places[start]
    marker = f'<circle class="marker" cx="{x}" cy="{y}" r="5.5"/>'
    return Slider(
        svg.replace("</svg>", f"{marker}</svg>"),
        "The same trained network at other thresholds, without retraining. It was trained with "
        f"{own['threshold']:g}. A lower threshold removes more; where the curve turns up, it removes what was "
        "needed. Bytes are those of the stored weights, before whole units are removed.",
        [_position(point, place) for point, place in zip(points, places, strict=True)],
        start,
        heading,
    )


def _position(point: dict[str, Any], place: tuple[float, float]) -> dict[str, Any]:
    return {
        "threshold": f"{point['threshold']:g}",
        "error": f"{point['error']:.2f} %",
        "weights": thousands(point["nonzero"]),
        "fewer": times(point["weights"] / point["nonzero"]),
        "bytes": size(point["bytes"]),
        "x": place[0],
        "y": place[1],
    }


def _frontier(runs: Sequence[Run], labels: Sequence[str]) -> Block:
    finished = [
        (run, label) for run, label in zip(runs, labels, strict=True) if not run.diverged and run.result["nonzero"]
    ]
    if not finished:
        return Note("In all of these runs, nothing is left of the network.", wide=True)
    canvas = Canvas(3.2)
    axes = canvas.axes[0]
    ends = [(run.result["nonzero"], max(run.result["error"], LOWEST)) for run, _ in finished]
    every = list(ends)
    for index, (run, label) in enumerate(finished):
        colour = SERIES[index % 6]
        sweep = (run.details or {}).get("sweep") or []
        curve = [(point["nonzero"], max(point["error"], LOWEST)) for point in sweep if point["nonzero"]]
        every += curve
        if curve:
            axes.plot(*zip(*curve, strict=True), color=colour, linestyle=DASHES[index % 6], linewidth=1.2)
        axes.plot(*ends[index], "o", color=colour, markersize=7, label=short(label))
    best = frontier(every)
    axes.step(*zip(*best, strict=True), where="post", color=MUTED, linewidth=4, alpha=0.3)
    _scale(canvas, every)
    legend(axes, len(finished))
    said = "; ".join(
        f"{label}: {run.result['error']:.2f} % with {thousands(run.result['nonzero'])} weights"
        for run, label in finished
    )
    return Figure(
        canvas.svg(f"The frontier of error against size. {said}."),
        "Further left is smaller, further down is better. Dots: the runs as trained; lines: the same networks at "
        f"other thresholds; grey band: the frontier, which none of them beats. {said}.",
        wide=True,
    )


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other point beats in both size and error, ordered by size.

    Example:
        >>> frontier([(10, 3.0), (20, 2.0), (30, 2.5), (15, 4.0), (10, 5.0)])
        [(10, 3.0), (20, 2.0)]
    """
    best: list[tuple[float, float]] = []
    for point in sorted(points):
        if not best or point[1] < best[-1][1]:
            best.append(point)
    return best


def _scale(canvas: Canvas, points: Sequence[tuple[float, float]]) -> None:
    """Two logarithmic axes with room around all points."""
    axes = canvas.axes[0]
    axes.set_xscale("log")
    axes.set_yscale("log")
    for values, which, limit in (
        ([weights for weights, _ in points], "x", axes.set_xlim),
        ([error for _, error in points], "y", axes.set_ylim),
    ):
        log_ticks(axes, values, which)
        limit(min(values) / 1.3, max(values) * 1.3)
    axes.tick_params(which="minor", width=0)
    axes.set_xlabel("remaining weights")
    axes.set_ylabel("error, %")
