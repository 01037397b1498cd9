"""What many runs show."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from vbdrop.cli.run_progress import Bars, Lines, title
from vbdrop.experiments import make_method, resolve
from vbdrop.train import Budget


@pytest.fixture
def runs():
    plain = resolve(make_method("plain", {}), model="lenet-5", data="mnist", checksum="", budget=Budget())
    gates = make_method("vbd-gates", {"weighting": "positions", "kl_weight": 5.0})
    return [plain, resolve(gates, model="mlp", data="mnist", checksum="", n_valid=10, budget=Budget())]


def test_the_title_tells_runs_apart(runs):
    assert title(runs[0]) == "plain on lenet-5, seed 0"
    assert title(runs[1]) == "vbd-gates kl_weight=5.0 weighting=positions on mlp(340), validation"
    second = replace(runs[1], budget=Budget(seed=1))
    assert title(second) == f"{title(runs[1])}, seed 1"


def test_a_line_a_run(runs):
    console = Console(file=io.StringIO(), width=60)
    with Lines(console, 3) as lines:
        for config in runs:
            lines.started(config)
            lines.progressed(config, 5, 10, "error 2.00 %")
        lines.ended(runs[0], None)
        lines.ended(runs[1], "")  # another process works on it
        lines.ended(runs[1], "the disk is full")
    assert console.file.getvalue().splitlines() == [
        "1/3  plain on lenet-5, seed 0  error 2.00 %",
        "2/3  vbd-gates kl_weight=5.0 weighting=positions on mlp(340), validation  failed: the disk is full",
    ]


def test_bars_end_full_also_where_the_choice_was_another_one(runs):
    console = Console(file=io.StringIO(), force_terminal=True, width=150)
    chosen = replace(runs[1], hyper={**runs[1].hyper, "kl_weight": 40.0})
    with Bars(console, runs, [10.0, 30.0]) as bars:
        for config in (runs[0], chosen):
            bars.started(config)
            bars.progressed(config, 5, 10, "error 2.00 %")
        assert bars.progress.tasks[0].percentage == pytest.approx(50)
        bars.ended(runs[0], None)
        bars.ended(chosen, None)
        assert bars.progress.tasks[0].percentage == pytest.approx(100)
        assert len(bars.progress.tasks) == 1
    assert "all runs" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
