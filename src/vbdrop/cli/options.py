"""Options that several verbs share."""

import os
from pathlib import Path
from typing import Annotated

import typer

from vbdrop.models import MODELS

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only, for scripts.")]

DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The folder of the data; by default $VBDROP_DATA, then the cache.", show_default=False
    ),
]

Model = Annotated[str, typer.Option(metavar="NAME", help=f"The network: {', '.join(MODELS)}.")]

ModelArg = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="An argument of the network, such as units=340; may be repeated.", show_default=False
    ),
]

Batch = Annotated[int, typer.Option(metavar="N", help="Examples per step.")]

Threads = Annotated[int, typer.Option(metavar="N", min=1, help="Threads; the last bits of the figures depend on them.")]

WORKERS = min(os.cpu_count() or 1, 4)

Run = Annotated[bool, typer.Option("--run", help="First make the missing runs.")]

Quick = Annotated[
    bool, typer.Option("--quick", help="Run a small version of everything, in minutes, to see that it works.")
]

Cost = Annotated[bool, typer.Option("--cost", help="Estimate the cost of the missing runs, without running them.")]

Seeds = Annotated[
    int | None, typer.Option(metavar="N", help="How many seeds; by default as in the table.", show_default=False)
]

Rows = Annotated[
    list[str] | None, typer.Option("--row", metavar="KEY", help="Only this row; may be repeated.", show_default=False)
]

Workers = Annotated[int, typer.Option(metavar="N", help="Processes, each with one thread.")]

On = Annotated[
    str,
    typer.Option(metavar="WHERE", help="Where to run: here, or ray for a Ray cluster, started here if necessary."),
]

Records = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The folder of records: records, or runs/quick with --quick.", show_default=False),
]

KeepWeights = Annotated[bool, typer.Option("--keep-weights", help="Keep all trained weights.")]

Output = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Also write the table to a file: .md or .json; may be repeated.",
        show_default=False,
    ),
]

TARGET_HELP = (
    "How small: macs=5 for 5 times fewer multiply-adds; likewise weights, parameters and latency. Limits: max_weights, "
    "max_macs, max_bytes=50 kB, max_latency=2 ms. within=0.3: as small as possible, with an error at most 0.3 higher "
    "(percentage points, for classes). Further settings (train, refine, unit, runtime, batch, round_to) are joined by "
    "commas: macs=5,round_to=8."
)
