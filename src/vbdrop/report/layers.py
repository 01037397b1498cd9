"""The layers before and after."""

from collections.abc import Sequence
from typing import Any

from vbdrop.report.blocks import Block, Note, TableBlock
from vbdrop.report.reading import Run
from vbdrop.report.wording import remedy, thousands


def layers(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Lay out the size of each layer, before and after."""
    blocks: list[Block] = []
    for run, label in zip(runs, labels, strict=True):
        heading = label if len(runs) > 1 else ""
        if run.diverged:
            blocks.append(Note("The run diverged.", heading=heading))
            continue
        blocks.append(_table(run, heading))
        if run.measured is None and run.result["nonzero"] < run.result["weights"]:
            text = "This record does not have the shapes of the small network. To make them:"
            blocks.append(Note(text, remedy(run, "measured"), heading, wide=True))
    return blocks


def _table(run: Run, heading: str) -> Block:
    shapes = {layer["name"]: layer for layer in run.measured["layers"]} if run.measured else {}
    rows = []
    for layer in run.result["layers"]:
        shape = shapes.get(layer["name"])
        rows.append(
            (
                layer["name"],
                thousands(layer["weights"]),
                thousands(layer["nonzero"]),
                _zeros(layer["weights"], layer["nonzero"]),
                _left(layer, "inputs"),
                _left(layer, "outputs"),
                *((_by(shape["shape"]), _by(shape["small_shape"])) if shape else ("–", "–") if shapes else ()),
            )
        )
    result = run.result
    total = ("all", thousands(result["weights"]), thousands(result["nonzero"]),
             _zeros(result["weights"], result["nonzero"]))  # fmt: skip
    header: tuple[str, ...] = ("Layer", "Weights", "Not zero", "Zeros", "Inputs left", "Outputs left")
    header = (*header, "Shape", "Small shape") if shapes else header
    rows.append((*total, *[""] * (len(header) - len(total))))
    return TableBlock(
        "Before and after: a zero weight needs no multiplication, and a unit without weights is removed.",
        header,
        tuple(rows),
        heading,
        strong=frozenset({len(rows) - 1}),
    )


def _zeros(weights: int, nonzero: int) -> str:
    return f"{100 * (1 - nonzero / weights):.1f} %" if weights else "–"


def _left(layer: dict[str, Any], side: str) -> str:
    alive = layer.get(f"{side}_alive")
    return f"{'?' if alive is None else thousands(alive)} of {thousands(layer[side])}"


def _by(shape: Sequence[int] | None) -> str:
    return "gone" if shape is None else " × ".join(map(str, shape))
