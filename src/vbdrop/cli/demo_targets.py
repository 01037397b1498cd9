"""The second half of ``vbdrop demo``: networks that are shrunk to a target."""

from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text

from vbdrop.cli.console import grid
from vbdrop.cli.walk_files import write_walk
from vbdrop.experiments import Record, trained_model
from vbdrop.experiments.inputs import examples
from vbdrop.exporting import export, measure
from vbdrop.exporting.onnx import require_packages
from vbdrop.models import build
from vbdrop.targets import ShrinkResult, Target, shrink
from vbdrop.targets.progress import ProgressLine

LR = 2e-3

SAMPLES = 64
"""The number of real inputs on which latency is measured."""


@dataclass(frozen=True)
class Goal:
    """One network of the demo, and the target it is shrunk to.

    Attributes:
        model: A key of :data:`vbdrop.models.MODELS`; None for the plain network of the first half, as trained.
        target: The target.
        epochs: The number of epochs of the whole run.
        timed: Whether its latency is measured.
    """

    model: str | None
    target: Target
    epochs: int
    timed: bool


GOALS = (
    Goal(None, Target(weights=50, train=0), 30, timed=False),
    Goal("lenet-5", Target(macs=5), 4, timed=True),
)


def show_targets(
    console: Console, plain: Record, folder: Path, epochs: int | None, data_dir: Path | None, *, quiet: bool = False
) -> None:
    """Shrink the networks, and print the results.

    Args:
        console: Where to print.
        plain: The run of the plain network.
        folder: Where the files go.
        epochs: Epochs per network; None for the number in each goal.
        data_dir: The folder of the data.
        quiet: Whether to omit the line per epoch.
    """
    data = examples(plain.config, data_dir)
    train, test = (data.train.inputs, data.train.targets), (data.test.inputs, data.test.targets)
    for goal in GOALS:
        network = trained_model(plain) if goal.model is None else build(goal.model)
        name = plain.config.model if goal.model is None else goal.model
        torch.manual_seed(0)
        result = shrink(
            network, train, valid=test, target=goal.target, epochs=epochs or goal.epochs, lr=LR,
            checkpoint=folder / f"{name}-target.pt", progress=not quiet and ProgressLine(goal.target.measured),
        )  # fmt: skip
        page = folder / f"{name}-target.html"
        write_walk(result, page, f"{name}-target")
        rows: list[tuple[str, ...]] = [("test error", f"{result.error_before:.2f} %", f"{result.error:.2f} %", "")]
        rows.append((result.unit, f"{result.before:,.0f}", f"{result.size:,.0f}", f"{result.times:.1f} times fewer"))
        rows += _latency(network, result, folder / f"{name}-target.onnx") if goal.timed else []
        console.print()
        console.print(Text(f"{name}, asked for {goal.target}", style="bold"))
        console.print(grid(("", "before", "after", ""), rows))
        console.print(f"{page}  how the run got to this size", soft_wrap=True)


def _latency(network: torch.nn.Module, result: ShrinkResult, path: Path) -> list[tuple[str, ...]]:
    """Measure both networks in PyTorch and, where it is installed, in ONNX Runtime."""
    try:
        require_packages()
        exports = [export(result.small, path)]
    except ImportError:
        exports = []
    found = measure(network, result.small, exports, batches=(1,))
    rows: list[tuple[str, ...]] = []
    for runtime in ("PyTorch", "ONNX Runtime"):
        before, after = (found.rows.get(f"{which}, {runtime}") for which in ("original", "small"))
        if before is not None and after is not None:
            times = found.faster(f"small, {runtime}", 1, than=f"original, {runtime}")
            shown = [f"{row.latency(1) * 1e6:.1f} µs" for row in (before, after)]
            rows.append((f"one digit, {runtime}", *shown, in_words(times)))
    return rows


def in_words(times: float) -> str:
    """Say how many times faster something became.

    Example:
        >>> in_words(3.0), in_words(0.8)
        ('3.0 times faster', '1.2 times slower')
    """
    return f"{times:.1f} times faster" if times >= 1 else f"{1 / times:.1f} times slower"
