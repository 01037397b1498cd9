"""How the cost of a training step grows with width and batch: time and peak memory, as ratios to the plain network.

    python -m benchmarks.scaling [--quick] [--threads 1] [--output scaling.json] [--plot scaling.svg]

Networks have two hidden layers of equal width. Either the width grows at a batch size of 128, or the batch size grows
at a width of 512. If the cost stays linear, the line does not rise.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import Row, run
from benchmarks.variants import OWN

WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (16, 32, 64, 128, 256, 512, 1024)
WIDTH, BATCH = 512, 128
"""The width while the batch size grows, and the batch size while the width grows."""


def cases(quick: bool, threads: int) -> list[Row]:
    """The points to measure; the one that both lines share is included once."""
    step = 3 if quick else 1
    points = [(width, BATCH) for width in WIDTHS[::step]] + [(WIDTH, batch) for batch in BATCHES[::step]]
    return [{"network": f"2x{width}", "batch": batch, "threads": threads} for width, batch in dict.fromkeys(points)]


def curve(rows: list[Row], variant: str, figure: str, over: str) -> tuple[list[int], list[float]]:
    """The points of one line.

    Args:
        rows: What was measured.
        variant: The variant to which the line belongs.
        figure: ``"ratio"`` or ``"memory_ratio"``.
        over: ``"width"`` or ``"batch"``.

    Returns:
        The widths or batches, and the ratios.
    """
    points = {}
    for row in rows:
        width, batch = int(row["network"].partition("x")[2]), row["batch"]
        fixed = batch == BATCH if over == "width" else width == WIDTH
        if row["variant"] == variant and fixed and figure in row:
            points[width if over == "width" else batch] = row[figure]
    return sorted(points), [points[at] for at in sorted(points)]


def plot(rows: list[Row], path: Path) -> None:
    """Draw time and memory over width and batch."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(9, 6), layout="constrained")
    axes: Any = drawing.subplots(2, 2, sharey="row")
    figures = (("ratio", "time of a step, to plain"), ("memory_ratio", "peak memory, to plain"))
    for down, (figure, title) in enumerate(figures):
        for across, (over, rest) in enumerate((("width", f"batch {BATCH}"), ("batch", f"width {WIDTH}"))):
            for variant in OWN[1:]:
                axes[down, across].plot(*curve(rows, variant, figure, over), marker="o", label=variant)
            axes[down, across].set_xscale("log", base=2)
            axes[down, across].set_xlabel(f"{over} ({rest})")
            axes[down, across].set_ylim(bottom=0)
            axes[down, across].grid(alpha=0.3)
        axes[down, 0].set_ylabel(title)
    axes[0, 0].legend()
    drawing.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="every third point, few rounds")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures; its cases are not measured again")
    parser.add_argument("--plot", type=Path, help="an SVG file for the picture")
    args = parser.parse_args()
    rounds = min(args.rounds, 5) if args.quick else args.rounds
    print(f"torch {torch.__version__}, {args.threads} threads, {rounds} rounds")
    rows = run(cases(args.quick, args.threads), OWN, rounds, args.output)
    if args.plot:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
