"""``vbdrop ablation``: VBD with one thing changed, on validation data."""

from vbdrop.cli.console import verb
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
from vbdrop.experiments import ABLATIONS, ablations

app = verb()

EXAMPLES = f"""\b
vbdrop ablation                            what has been recorded
vbdrop ablation --run --row base --row refine --seeds 1

The rows: {", ".join(ABLATIONS)}.
"""


@app.command(epilog=EXAMPLES)
def ablation(
    run: Run = False,
    quick: Quick = False,
    cost: Cost = False,
    seeds: Seeds = None,
    row: Rows = None,
    workers: Workers = WORKERS,
    on: On = "here",
    records: Records = None,
    data_dir: DataDir = None,
    keep_weights: KeepWeights = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Print the effect of changing one setting of VBD on weights, beside the base; run what is missing.

    Everything is evaluated on held-out training data, after the last epoch, so that the test data stay unseen until
    the choices are made.
    """
    asked = Asked(
        run=run,
        cost=cost,
        seeds=seeds,
        rows=row or [],
        workers=workers,
        on=on,
        records=records,
        data_dir=data_dir,
        keep_weights=keep_weights,
        as_json=as_json,
        output=output or [],
    )
    answer(ablations(quick=quick), asked)
