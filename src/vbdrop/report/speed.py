"""Latency and bytes of the original and the small network."""

from collections.abc import Sequence
from typing import Any

from vbdrop.report.blocks import Block, Figure, Note, TableBlock
from vbdrop.report.drawing import MUTED, SERIES, Canvas
from vbdrop.report.reading import Run
from vbdrop.report.wording import microseconds, remedy, size, times


def speed(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Lay out the measurements."""
    blocks: list[Block] = []
    for run, label in zip(runs, labels, strict=True):
        heading = label if len(runs) > 1 else ""
        if run.diverged:
            blocks.append(Note("The run diverged.", heading=heading))
        elif run.measured is not None:
            blocks += [_bars(run.measured, heading), _table(run.measured, heading)]
        elif run.result["nonzero"] == run.result["weights"]:
            text = "Nothing was removed from this network, so there is no small one to measure."
            blocks.append(Note(text, heading=heading))
        else:
            text = "Bytes and latency were not measured for this record (there is no measured.json). To measure them:"
            blocks.append(Note(text, remedy(run, "measured"), heading))
    return blocks


def _bars(found: dict[str, Any], heading: str) -> Block:
    rows = list(reversed(found["rows"]))
    batch = next(iter(rows[0]["microseconds"]))
    canvas = Canvas(0.7 + 0.32 * len(rows), columns=2, sharey=True)
    for axes, values, said, name in (
        (canvas.axes[0], [row["microseconds"][batch] for row in rows], microseconds, f"latency, batch of {batch}"),
        (canvas.axes[1], [row["bytes"] for row in rows], size, "file"),
    ):
        colours = [SERIES[0] if row["name"].startswith("small") else MUTED for row in rows]
        axes.barh(range(len(rows)), values, 0.62, color=colours)
        for index, value in enumerate(values):
            axes.text(value + 0.02 * max(values), index, said(value), va="center", fontsize=7.5)
        axes.set_xlim(0, 1.42 * max(values))
        axes.set_title(name)
        axes.set_xticks([])
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(length=0)
    canvas.axes[0].set_yticks(range(len(rows)), [row["name"] for row in rows])
    told = "; ".join(
        f"{row['name']} {microseconds(row['microseconds'][batch])}, {size(row['bytes'])}" for row in found["rows"]
    )
    return Figure(
        canvas.svg(f"Bars of latency and bytes. {told}."),
        "Shorter is better. Grey: the original network; coloured: the small one. The file is everything that runtime "
        "needs: for C the source; ONNX also stores the zeros.",
        heading,
        wide=True,
    )


def _table(found: dict[str, Any], heading: str) -> Block:
    rows = found["rows"]
    batches = list(rows[0]["microseconds"])
    first = rows[0]
    shown = tuple(
        (row["name"], size(row["bytes"]), times(first["bytes"] / row["bytes"]),
         *(text for batch in batches for text in (
             microseconds(row["microseconds"][batch]),
             times(first["microseconds"][batch] / row["microseconds"][batch]))))
        for row in rows
    )  # fmt: skip
    missing = tuple(
        (name, f"not measured: {why}", *[""] * (1 + 2 * len(batches))) for name, why in found["missing"].items()
    )
    header = ("", "File", "smaller", *(text for batch in batches for text in (f"Batch of {batch}", "faster")))
    caption = (
        f"Bytes and median latency on one thread of {found['processor']}, measured in turn in one run. "
        f"The small network has an error of {found['error']:.2f} %."
    )
    return TableBlock(caption, header, shown + missing, heading)
