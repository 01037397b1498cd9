"""How to reproduce the figures."""

import json
from collections.abc import Sequence

from vbdrop.report.blocks import Block, Note
from vbdrop.report.reading import Run
from vbdrop.report.wording import command


def reproduce(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Show the command of each run, and the file that it reads, if any."""
    blocks: list[Block] = []
    for run, label in zip(runs, labels, strict=True):
        line = command(run)
        text = f"Run {run.id}. On the same machine, with the same number of threads, it is reproduced bit for bit."
        lines: tuple[str, ...] = (line,)
        if line.endswith("--config config.json"):
            text += " The command reads config.json, which holds:"
            lines = (line, json.dumps(run.config, indent=2))
        blocks.append(Note(text, lines, label if len(runs) > 1 else "", wide=True))
    return blocks
