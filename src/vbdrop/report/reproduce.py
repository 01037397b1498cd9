"""How to reproduce the figures."""

import json
from collections.abc import Sequence

from vbdrop.report.blocks import Block, Note
from vbdrop.report.reading import Run
from vbdrop.report.wording import command


def reproduce(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Show the command of each run, and the file that it reads."""
    blocks: list[Block] = []
    for run, label in zip(runs, labels, strict=True):
        text = (
            f"Run {run.id}. On the same machine, with the same number of threads, it is reproduced bit for bit. "
            "The command reads config.json, which holds:"
        )
        lines = (command(run), json.dumps(run.config, indent=2))
        blocks.append(Note(text, lines, label if len(runs) > 1 else "", wide=True))
    return blocks
