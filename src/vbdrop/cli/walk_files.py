"""The files of a run of `vbdrop.shrink`: its page and, beside it, the models that can be chosen on the page."""

from pathlib import Path
from typing import Any

from vbdrop.cli.report import write_page
from vbdrop.report import render_walk
from vbdrop.targets import ShrinkResult


def write_walk(result: ShrinkResult, page: Path, name: str) -> tuple[list[str], dict[str, Any]]:
    """Write the page of a run, its result and the models that were kept on the way.

    Args:
        result: The run.
        page: The page; its folder is created if it does not exist, and gets the models.
        name: The stem of the model files: ``name.safetensors``, ``name-2.0x.safetensors``.

    Returns:
        A line for each file, and the figures of the run with the names of the files.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    figures = result.figures() | {"file": f"{name}.safetensors"}
    lines = [_line(page.parent / figures["file"], result.save(page.parent / figures["file"]))]
    for kept, shown in zip(result.kept, figures["kept"], strict=True):
        shown["file"] = f"{name}-{kept.times:.1f}x.safetensors"
        lines.append(_line(page.parent / shown["file"], kept.save(page.parent / shown["file"])))
    write_page(render_walk(figures), page)
    return [*lines, f"{page}, how the run got to that size: open it in a browser"], figures


def _line(path: Path, size: int) -> str:
    return f"{path}, {size:,} bytes"
