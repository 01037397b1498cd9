"""``vbdrop table``: a table of the paper, with our figures beside it."""

from typing import Annotated

import typer

from vbdrop.cli.console import usage, verb
from vbdrop.cli.options import (
    WORKERS,
    AsJson,
    Cost,
    DataDir,
    KeepWeights,
    On,
    Output,
    Quick,
    Records,
    Rows,
    Run,
    Seeds,
    Workers,
)
from vbdrop.cli.table_verbs import Asked, answer
from vbdrop.experiments import protocol_of

app = verb()

EXAMPLES = """\b
vbdrop table 4                    what has been recorded
vbdrop table 4 --run --workers 2  run the rest; may be stopped and started again at will
vbdrop table 4 --run --on ray     the same on a Ray cluster
vbdrop table 4 --quick            everything small, on digits that come with the package
"""


@app.command(epilog=EXAMPLES)
def table(
    number: Annotated[
        int, typer.Argument(metavar="N", help="1 MNIST, 2 CIFAR-10, 3 SVHN, 4 weights, 5 neurons.", show_default=False)
    ],
    run: Run = False,
    quick: Quick = False,
    cost: Cost = False,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Run without trials, with each method's default settings.")
    ] = False,
    seeds: Seeds = None,
    row: Rows = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Only this column; may be repeated.", show_default=False)
    ] = None,
    workers: Workers = WORKERS,
    on: On = "here",
    records: Records = None,
    data_dir: DataDir = None,
    keep_weights: KeepWeights = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Print a table of the paper with our figures beside it; run what is missing.

    Hyper-parameters are chosen on held-out training data, with the same number of trials for every method; then the
    network is trained on all training data and tested once, after the last epoch.
    """
    with usage():
        protocol = protocol_of(number, quick=quick)
    asked = Asked(
        run,
        cost,
        defaults,
        seeds,
        row or [],
        column or [],
        workers,
        on,
        records,
        data_dir,
        keep_weights,
        as_json,
        output or [],
    )
    answer(protocol, asked)
