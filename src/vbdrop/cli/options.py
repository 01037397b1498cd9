"""Options that several verbs have."""

from pathlib import Path
from typing import Annotated

import typer

from vbdrop.models import MODELS

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a script.")]

DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where the data are; else $VBDROP_DATA, then the cache.", show_default=False),
]

Model = Annotated[str, typer.Option(metavar="NAME", help=f"The network: {', '.join(MODELS)}.")]

ModelArg = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="An argument of the network, such as units=340; may be repeated.", show_default=False
    ),
]

Batch = Annotated[int, typer.Option(metavar="N", help="Examples a step.")]

Threads = Annotated[int, typer.Option(metavar="N", help="Threads; the last bits of the figures depend on them.")]
