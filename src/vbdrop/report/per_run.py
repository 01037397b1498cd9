"""Figures from the details of each run, or a note if a record has none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vbdrop.report.blocks import Block, Note
from vbdrop.report.reading import Run
from vbdrop.report.wording import remedy


def from_details(
    runs: Sequence[Run],
    labels: Sequence[str],
    draw: Callable[[Run, Mapping[str, Any], str], list[Block]],
    without: Callable[[Run], str],
) -> list[Block]:
    """Draw something for each run.

    Args:
        runs: The runs.
        labels: Their names, used as headings if there are several.
        draw: Run, details and heading -> blocks.
        without: Run -> the text of the note if it has no details, before the command that makes them.
    """
    blocks: list[Block] = []
    for run, label in zip(runs, labels, strict=True):
        heading = label if len(runs) > 1 else ""
        if run.diverged:
            blocks.append(Note("The run diverged.", heading=heading))
        elif run.details is None:
            blocks.append(Note(without(run), remedy(run, "details"), heading))
        else:
            blocks += draw(run, run.details, heading)
    return blocks
