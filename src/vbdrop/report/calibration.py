"""Calibration: whether the network is right as often as its confidence says."""

from collections.abc import Mapping, Sequence
from typing import Any

from vbdrop.report.blocks import Block, Figure
from vbdrop.report.drawing import INK, MUTED, SERIES, Canvas
from vbdrop.report.per_run import from_details
from vbdrop.report.reading import Run
from vbdrop.report.wording import thousands


def calibration(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Draw accuracy against confidence."""
    return from_details(runs, labels, _diagram, _without)


def _without(run: Run) -> str:
    return (
        f"The calibration error is {100 * run.result['ece']:.2f} %. This record does not have its bins (there is no "
        "details.json). To make them:"
    )


def _diagram(run: Run, details: Mapping[str, Any], heading: str) -> list[Block]:
    bins: Sequence[Mapping[str, float]] = details["calibration"]
    canvas = Canvas(3.4)
    axes = canvas.axes[0]
    total = sum(each["count"] for each in bins)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
    for each in bins:
        axes.plot([each["confidence"]] * 2, [each["confidence"], each["accuracy"]], color=SERIES[1], linewidth=1.2)
    axes.scatter(
        [each["confidence"] for each in bins],
        [each["accuracy"] for each in bins],
        s=[10 + 160 * each["count"] / total for each in bins],
        color=SERIES[0],
        alpha=0.85,
        linewidths=0,
        zorder=3,
    )
    axes.set_xlim(-0.02, 1.04)
    axes.set_ylim(-0.02, 1.06)
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy")
    axes.text(0.17, 0.13, "perfectly calibrated", color=INK, fontsize=8, ha="left", va="top")
    sure = max(bins, key=lambda each: each["confidence"])
    said = (
        f"The calibration error is {100 * run.result['ece']:.2f} %; of the {thousands(sure['count'])} most confident "
        f"predictions, with a mean confidence of {100 * sure['confidence']:.1f} %, "
        f"{100 * sure['accuracy']:.1f} % are correct."
    )
    figure = Figure(
        canvas.svg(f"Accuracy against confidence in {len(bins)} bins. {said}"),
        "Each dot is a group of predictions with similar confidence; the larger the dot, the more predictions. On the "
        f"dashed line, confidence equals accuracy; below it the network is overconfident. {said}",
        heading,
    )
    return [figure]
