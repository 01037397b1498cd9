"""``vbdrop demo``: what the package is for, in a minute, on digits that come with it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.text import Text

from vbdrop.cli.app import STOPPED
from vbdrop.cli.compress import comparison
from vbdrop.cli.console import err, out
from vbdrop.cli.options import verb
from vbdrop.cli.train import report
from vbdrop.compression import compress
from vbdrop.experiments import Record, execute, make_method, resolve, trained_model
from vbdrop.experiments.inputs import examples, facts
from vbdrop.models import MODELS
from vbdrop.train import Budget, evaluate
from vbdrop.train.progress import reporting

app = verb()

KL_WEIGHT = 0.1
"""With 8,000 examples instead of 60,000 the full KL takes out too much."""


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(metavar="N", help="Epochs of each of the two networks.")] = 40,
    records: Annotated[Path, typer.Option(metavar="DIR", help="Where the two runs are kept.")] = Path("runs/demo"),
) -> None:
    """Train, prune and show what was learned: a minute on digits that come with the package.

    LeNet-300-100 is trained twice on 8,000 digits of MNIST: plainly, and with Variational Bayesian Dropout, in which
    every weight learns its own dropout rate. The weights that carry only noise are then taken out.
    """
    torch.set_num_threads(1)
    say = err()
    try:
        plain = _run(say, records, "plain", {}, epochs, "1/2  the plain network     ")
        pruned = _run(say, records, "vbd-weights", {"kl_weight": KL_WEIGHT}, epochs, "2/2  learned dropout rates")
    except KeyboardInterrupt:
        say.print("Stopped. The same command goes on.")
        raise typer.Exit(STOPPED) from None
    console = out()
    console.print(Text("What the network learned", style="bold"))
    console.print(report(pruned))
    console.print()
    console.print(Text("The plain network, and what is left of the other one when the rest is taken out", style="bold"))
    config = pruned.config
    small = compress(trained_model(pruned), torch.zeros(1, *MODELS[config.model].input_shape))
    error = evaluate(small.model, examples(config).test).error
    console.print(comparison(small, plain.result["error"], error))
    console.print(
        "The small network is plain torch.nn. To keep it or to export it:\n"
        f"  vbdrop compress {pruned.folder} --save small.safetensors --export small.onnx",
        soft_wrap=True,
    )


def _run(say: Console, records: Path, method: str, settings: Mapping[str, float], epochs: int, title: str) -> Record:
    config = resolve(
        make_method(method, settings),
        model="lenet-300-100",
        data="digits",
        checksum=facts("digits").checksum,
        budget=Budget(epochs=epochs),
    )
    with reporting(title, say) as show:
        return execute(config, records, report=show, keep_weights=True)
