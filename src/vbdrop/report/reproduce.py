"""How to get the same figures again."""

import json
from collections.abc import Sequence

from vbdrop.report.blocks import Block, Note
from vbdrop.report.reading import Run
from vbdrop.report.wording import command


def reproduce(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Give the command of each run; where it reads a file, also that."""
    blocks: list[Block] = []
    for run, label in zip(runs, labels, strict=True):
        line = command(run)
        text = f"Run {run.id}. On the same machine and number of threads it gives the same bits."
        lines: tuple[str, ...] = (line,)
        if line.endswith("--config config.json"):
            text += " The command reads config.json, which holds:"
            lines = (line, json.dumps(run.config, indent=2))
        blocks.append(Note(text, lines, label if len(runs) > 1 else "", wide=True))
    return blocks
