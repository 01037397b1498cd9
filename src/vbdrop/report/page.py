"""The page of one or several runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vbdrop.report.drawing import style
from vbdrop.report.reading import ReportError, Run, read_run
from vbdrop.report.table import SECTIONS
from vbdrop.report.template import fill
from vbdrop.report.wording import labels, thousands, times, title


def render_report(folders: Sequence[Path]) -> str:
    """Make the page of one or several runs, side by side.

    Args:
        folders: The folders of the runs.

    Returns:
        Self-contained HTML: it needs no network and no other file.

    Raises:
        ReportError: A folder is not a run, or the run has not ended or is damaged.

    Example:
        >>> render_report([Path("no/such/run")])
        Traceback (most recent call last):
        vbdrop.report.reading.ReportError: no/such/run is not a run: there is no such folder
    """
    if not folders:
        raise ReportError("there must be at least one run to show; got none")
    runs = [read_run(Path(folder)) for folder in folders]
    names = labels(runs)
    with style():
        sections = [(section, section.draw(runs, names)) for section in SECTIONS]
    return fill(
        "report.html",
        title=title(runs[0]) if len(runs) == 1 else f"{len(runs)} runs: {', '.join(names)}",
        heads=[_head(run, name) for run, name in zip(runs, names, strict=True)],
        sections=sections,
        many=len(runs) > 1,
    )


def _head(run: Run, name: str) -> dict[str, Any]:
    """Return the headline figures."""
    if run.diverged:
        return {"name": name, "figures": [("outcome", "diverged", f"in epoch {run.result['diverged_in_epoch']}")]}
    result = run.result
    where = result["evaluated_on"]
    figures = [
        (
            f"{where} error",
            f"{result['error']:.2f} %",
            f"{thousands(result['wrong'])} of {thousands(result['examples'])} wrong",
        )
    ]
    if result["nonzero"] < result["weights"]:
        figures.append(
            (
                "fewer weights",
                times(result["ratio"]),
                f"{thousands(result['nonzero'])} of {thousands(result['weights'])} left",
            )
        )
    else:
        figures.append(("weights", thousands(result["weights"]), "none of them zero"))
    figures.append(("calibration error", f"{100 * result['ece']:.2f} %", "expected (ECE)"))
    return {"name": name, "figures": figures}
