"""The learned noise of the weights: log alpha against its threshold, and the dropout rates."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vbdrop.report.blocks import Block, Figure, Note, TableBlock
from vbdrop.report.drawing import INK, MUTED, SERIES, Canvas
from vbdrop.report.reading import Run
from vbdrop.report.wording import remedy, short, thousands

MOST = 8
"""How many layers are drawn; of a deeper network, the first and the last."""


def log_alphas(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Draw the histogram of log alpha of each layer, with its threshold."""
    blocks: list[Block] = []
    for run, label in zip(runs, labels, strict=True):
        heading = label if len(runs) > 1 else ""
        blocks.append(_absent(run, heading) or _histograms(run, heading))
    return blocks


def dropout_rates(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Draw the spread of the dropout rates of each layer, and list their means."""
    headings = labels if len(runs) > 1 else [""] * len(runs)
    spreads: list[Block] = []
    means: list[Block] = []
    for run, heading in zip(runs, headings, strict=True):
        spreads.append(_absent(run, heading) or _spread(run, heading))
        if not run.diverged and run.result["rates"]:
            means.append(_means(run, heading))
    return spreads + means


def _absent(run: Run, heading: str) -> Note | None:
    if run.diverged:
        return Note("The run diverged.", heading=heading)
    if run.result["rates"] is None:
        return Note(f"{run.config['method']} has no learned dropout rates.", heading=heading)
    if run.details is None:
        return Note(
            "This record does not have the distribution (there is no details.json). To make it:",
            remedy(run, "details"),
            heading,
        )
    return None


def _chosen(layers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(layers) if len(layers) <= MOST else [*layers[: MOST // 2], *layers[-MOST // 2 :]]


def _histograms(run: Run, heading: str) -> Block:
    layers = _chosen(run.details["noise"] if run.details else [])
    canvas = Canvas(0.5 + 1.05 * len(layers), rows=len(layers), sharex=True)
    said = []
    for axes, layer in zip(canvas.axes, layers, strict=True):
        edges = np.linspace(layer["lowest"], layer["highest"], len(layer["counts"]) + 1)
        width = edges[1] - edges[0]
        counts = [layer["below"], *layer["counts"], layer["above"]]
        places = [edges[0] - 1.5 * width, *(edges[:-1] + width / 2), edges[-1] + 1.5 * width]
        dead = [layer["threshold"] is not None and place >= layer["threshold"] for place in places]
        widths = [2 * width, *[width * 0.92] * len(layer["counts"]), 2 * width]
        colours = [MUTED if each else SERIES[0] for each in dead]
        axes.bar(places, counts, widths, color=colours)
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylim(0, 4 * max(*counts, 1))
        axes.set_yticks([tick for tick in (0, 10, 1e3, 1e5) if tick <= max(counts)] or [0])
        axes.set_yticklabels([f"{tick:,.0f}" for tick in axes.get_yticks()])
        axes.yaxis.minorticks_off()
        axes.set_title(short(layer["name"]))
        if layer["threshold"] is not None:
            axes.axvline(layer["threshold"], color=INK, linewidth=1, linestyle=(0, (4, 2)))
        said.append(f"{layer['name']}: {thousands(_above(run, layer))} of {thousands(layer['count'])} dead")
    low, high = layers[0]["lowest"], layers[0]["highest"]
    ticks = [low - 0.6, -8, -4, 0, 4, 8, high + 0.6]
    canvas.axes[-1].set_xticks(ticks, [f"< {low:g}", "-8", "-4", "0", "4", "8", f"≥ {high:g}"])
    canvas.axes[-1].set_xlabel("log alpha")
    skipped = len((run.details or {})["noise"]) - len(layers)
    return Figure(
        canvas.svg(f"Histograms of log alpha, one per layer. {'; '.join(said)}."),
        "How noisy the weights are: alpha is the variance of a weight divided by its squared mean. Left of the dashed "
        "line, the threshold, a weight carries signal and is kept (coloured); right of it, the weight is only noise "
        "and is removed (grey). The fewer weights lie near the line, the less the choice of threshold matters. "
        f"Counts are on a logarithmic scale.{f' {skipped} layers in the middle are not shown.' if skipped else ''}",
        heading,
    )


def _above(run: Run, layer: dict[str, Any]) -> int:
    rate = (run.result["rates"] or {}).get(layer["name"])
    return rate["dead"] if rate else 0


def _spread(run: Run, heading: str) -> Block:
    layers = _chosen(run.details["noise"] if run.details else [])
    canvas = Canvas(0.9 + 0.34 * len(layers))
    axes = canvas.axes[0]
    for row, layer in enumerate(reversed(layers)):
        low, quarter, middle, three, high = layer["p_quantiles"]
        axes.plot([low, high], [row, row], color=SERIES[0], linewidth=1)
        axes.plot([quarter, three], [row, row], color=SERIES[0], linewidth=5, solid_capstyle="butt", alpha=0.45)
        axes.plot([middle], [row], "|", color=INK, markersize=11, markeredgewidth=1.6)
        axes.plot([layer["p"]], [row], "o", color=SERIES[1], markersize=4.5)
    axes.set_yticks(range(len(layers)), [short(layer["name"]) for layer in reversed(layers)])
    axes.set_ylim(-0.7, len(layers) - 0.3)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("dropout rate p = alpha / (1 + alpha)")
    said = "; ".join(f"{layer['name']}: mean {layer['p']:.3f}" for layer in layers)
    return Figure(
        canvas.svg(f"The spread of the learned dropout rates, one row per layer. {said}."),
        "The dropout rates that the network learned. Dot: mean of a layer; tick: median; thick and thin line: the "
        "middle 50 % and 90 % of its weights.",
        heading,
    )


def _means(run: Run, heading: str) -> Block:
    rates = run.result["rates"]
    rows = tuple(
        (name, thousands(rate["count"]), f"{rate['p']:.3f}", thousands(rate["dead"]),
         f"{100 * rate['dead'] / rate['count']:.1f} %")
        for name, rate in rates.items()
    )  # fmt: skip
    header = ("Layer or gate", "Weights or units", "Mean rate p", "Dead", "Share dead")
    return TableBlock("The learned dropout rates, one layer or gate per row.", header, rows, heading, wide=False)
