"""Error and sparsity per epoch."""

from collections.abc import Sequence

from vbdrop.report.blocks import Block, Figure, Note
from vbdrop.report.drawing import DASHES, SERIES, Canvas, legend, log_ticks
from vbdrop.report.reading import Run
from vbdrop.report.wording import short

TOP = 4.0
"""Early epochs with an error above this many times the last one are cut off: they would flatten all that follows."""


def training(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Draw the error of all runs in one figure, and the remaining weights of each run."""
    blocks: list[Block] = [_errors(runs, labels)]
    for run, label in zip(runs, labels, strict=True):
        heading = label if len(runs) > 1 else ""
        blocks.append(_weights(run, heading))
    return blocks


def _errors(runs: Sequence[Run], labels: Sequence[str]) -> Block:
    lines = [[(line["epoch"], line["error"]) for line in run.metrics if line.get("error") is not None] for run in runs]
    if not any(lines):
        return Note("No epoch was evaluated, so there is no error curve.")
    canvas = Canvas(3.0)
    axes = canvas.axes[0]
    for index, (line, label) in enumerate(zip(lines, labels, strict=True)):
        if line:
            axes.plot(
                *zip(*line, strict=True), color=SERIES[index % 6], linestyle=DASHES[index % 6], label=short(label)
            )
    last, first = max(line[-1][1] for line in lines if line), max(line[0][1] for line in lines if line)
    axes.set_ylim(0, max(min(first, TOP * last), 1e-3) * 1.05)
    axes.set_xlabel("epoch")
    axes.set_ylabel("error, %")
    legend(axes, len(runs))
    where = " or ".join(sorted({run.result["evaluated_on"] for run in runs}, reverse=True))
    said = "; ".join(f"{label} ends at {line[-1][1]:.2f} %" for line, label in zip(lines, labels, strict=True) if line)
    return Figure(
        canvas.svg(f"Line chart of the {where} error per epoch. {said}."),
        f"The {where} error of the network if training stopped at that epoch, without noise and with dead weights at "
        f"zero. {said}.",
        wide=len(runs) > 1,
    )


def _weights(run: Run, heading: str) -> Block:
    lines = [line for line in run.metrics if line.get("nonzero")]
    if run.diverged or not lines:
        return Note("This run did not record the weights of each epoch.", heading=heading)
    sizes = {layer["name"]: layer["weights"] for layer in run.result["layers"]}
    if run.result["nonzero"] == run.result["weights"]:
        return Note("This method sets no weight to zero, so there is no sparsity curve.", heading=heading)
    canvas = Canvas(3.0)
    axes = canvas.axes[0]
    shown = []
    for index, (name, weights) in enumerate(sizes.items()):
        epochs = [line["epoch"] for line in lines if name in line["nonzero"]]
        shares = [max(100 * line["nonzero"][name] / weights, 1e-3) for line in lines if name in line["nonzero"]]
        axes.plot(epochs, shares, color=SERIES[index % 6], linestyle=DASHES[index % 6], label=short(name))
        shown += shares
    axes.set_yscale("log")
    log_ticks(axes, shown, "y")
    axes.set_xlabel("epoch")
    axes.set_ylabel("non-zero weights, %")
    legend(axes, len(sizes))
    last = lines[-1]["nonzero"]
    said = "; ".join(f"{name} {100 * last[name] / weights:.1f} %" for name, weights in sizes.items() if name in last)
    return Figure(
        canvas.svg(f"Line chart of the remaining weights of each layer per epoch. At the end: {said}."),
        f"The share of its weights that each layer keeps, on a logarithmic scale. At the end: {said}.",
        heading,
    )
