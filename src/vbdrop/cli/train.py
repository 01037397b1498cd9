"""``vbdrop train``: one run, with its record."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Group
from rich.text import Text

from vbdrop.cli.app import STOPPED
from vbdrop.cli.console import err, grid, out, print_json, settings, usage, verb
from vbdrop.cli.options import AsJson, Batch, DataDir, Model, ModelArg, Threads
from vbdrop.cli.run_display import reporting
from vbdrop.data import DATASETS, NORMALISATIONS
from vbdrop.experiments import Config, Record, execute, make_method, record_of, resolve
from vbdrop.experiments.config import from_dict
from vbdrop.experiments.inputs import examples as load_examples
from vbdrop.experiments.inputs import facts
from vbdrop.methods import METHODS
from vbdrop.models import build
from vbdrop.train import SCHEDULES, Budget, RecordError
from vbdrop.train.files import read_json

app = verb()


Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the method, such as kl_weight=2; may be repeated.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Repeat the run of this config.json, instead of METHOD.", show_default=False),
]

EXAMPLES = """\b
vbdrop train vbd-weights                    LeNet-300-100 on digits that come with the package
vbdrop train vbd-weights --data mnist --epochs 100 --set kl_weight=2
vbdrop train vbd-gates --model lenet-5      fewer units instead of fewer weights
"""


SETTINGS = (
    "model", "model_arg", "data", "setting", "epochs", "batch", "lr", "schedule", "shrink_every", "seed", "normalise",
    "valid", "examples",
)  # fmt: skip
"""The options that say what is run; a file of settings replaces all of them."""


@app.command(epilog=EXAMPLES)
def train(
    context: typer.Context,
    method: Annotated[
        str | None, typer.Argument(metavar="METHOD", help="A method; vbdrop methods lists them.", show_default=False)
    ] = None,
    model: Model = "lenet-300-100",
    model_arg: ModelArg = None,
    data: Annotated[str, typer.Option(metavar="NAME", help=f"The data set: {', '.join(DATASETS)}.")] = "digits",
    data_dir: DataDir = None,
    setting: Setting = None,
    epochs: Annotated[int, typer.Option(metavar="N", help="Passes over the training data.")] = 50,
    batch: Batch = 100,
    lr: Annotated[float, typer.Option(metavar="RATE", help="Adam's learning rate.")] = 1e-3,
    schedule: Annotated[
        str, typer.Option(metavar="NAME", help=f"How the rate falls: {', '.join(SCHEDULES)}.")
    ] = "late-linear",
    shrink_every: Annotated[
        int | None,
        typer.Option(metavar="N", help="Every N epochs, remove the units that stayed dead.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of weights, noise and example order.")] = 0,
    normalise: Annotated[
        str, typer.Option(metavar="NAME", help=f"How pixels become inputs: {', '.join(NORMALISATIONS)}.")
    ] = "unit",
    valid: Annotated[int, typer.Option(metavar="N", help="Hold out N training examples and evaluate on them.")] = 0,
    examples: Annotated[
        int | None, typer.Option(metavar="N", help="Train on the first N examples only.", show_default=False)
    ] = None,
    config: ConfigFile = None,
    records: Annotated[Path, typer.Option(metavar="DIR", help="The run gets its own folder in here.")] = Path("runs"),
    threads: Threads = 1,
    weights: Annotated[bool, typer.Option(help="Keep the trained weights, for vbdrop compress.")] = True,
    as_json: AsJson = False,
) -> None:
    """Train a network with one of the methods, and keep a record of the run.

    If the run is stopped or killed, the same command resumes it, and it ends with the same figures.
    """
    if (config is None) == (method is None):
        raise typer.BadParameter(f"give a METHOD, one of {', '.join(METHODS)}, or --config.")
    with usage(n_valid="valid", n_train="examples"):
        if config is not None:
            run = _recorded(config, context)
        else:
            budget = Budget(epochs=epochs, batch=batch, lr=lr, schedule=schedule, seed=seed, shrink_every=shrink_every)
            run = resolve(
                make_method(method or "", settings(setting or [])),
                model=model,
                model_args=settings(model_arg or []),
                data=data,
                checksum=facts(data, data_dir).checksum,
                normalise=normalise,
                n_valid=valid,
                n_train=examples,
                budget=budget,
            )
        if not record_of(run, records).finished:  # settings that do not fit leave no record
            load_examples(run, data_dir)
            build(run.model, **run.model_args)
    torch.set_num_threads(threads)
    record = make(run, records, data_dir, weights=weights)
    if as_json:
        print_json(record.result)
    else:
        console = out()
        console.print(report(record))
        console.print(f"The record is in {record.folder}", style="dim", soft_wrap=True)  # a path is never cut
    if record.result["outcome"] != "finished":
        raise typer.Exit(1)


def _recorded(path: Path, context: typer.Context) -> Config:
    options = {option.name: option.opts[0] for option in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in SETTINGS}
    given = [options[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        raise typer.BadParameter(f"--config has all settings; it cannot be combined with {', '.join(given)}.")
    try:
        return from_dict(read_json(path))
    except RecordError as error:
        raise typer.BadParameter(str(error)) from error


def make(run: Config, records: Path, data_dir: Path | None, *, weights: bool) -> Record:
    """Make a run and show its progress; a run that has already ended is not repeated.

    Args:
        run: Its settings.
        records: The run gets its own folder in here.
        data_dir: The folder of the data.
        weights: Keep the trained weights.
    """
    console = err()
    record = record_of(run, records)
    if record.finished:
        console.print(f"{record.folder} has already ended; this is its result.", style="dim", soft_wrap=True)
        return record
    title = f"{METHODS[run.method].title} · {run.model} · {run.data}"
    try:
        with reporting(title, console) as show:
            return execute(run, records, data_dir=data_dir, report=show, keep_weights=weights)
    except KeyboardInterrupt:
        console.print(f"Stopped. The same command resumes {record.folder}.", soft_wrap=True)
        raise typer.Exit(STOPPED) from None


def report(record: Record) -> Group:
    """Lay out the result of a run.

    Args:
        record: The record of a run that has ended.
    """
    result = record.result
    if result["outcome"] != "finished":
        return Group(Text(f"The loss became infinite in epoch {result['diverged_in_epoch']}.", style="red"))
    where = "validation" if result["evaluated_on"] == "validation" else "test"
    facts_shown = [
        (f"{where} error", f"{result['error']:.2f} %  ({result['wrong']:,} of {result['examples']:,} wrong)"),
        ("log likelihood", f"{-result['nll']:.4f} nats per example"),
        ("calibration error", f"{100 * result['ece']:.2f} %"),
        ("weights", _weights(result)),
    ]
    width = max(len(name) for name, _ in facts_shown)
    head = Text("\n").join(Text.assemble((f"{name:<{width}}  ", "dim"), said) for name, said in facts_shown)
    return Group(head, grid(_HEADER, _layers(result)))


_HEADER = ("layer", "weights", "not zero", "zeros %", "inputs left", "outputs left", "dropout rate")


def _weights(result: dict[str, Any]) -> str:
    kept, weights = result["nonzero"], result["weights"]
    if kept == weights:
        return f"{weights:,}, none of them zero"
    return f"{kept:,} of {weights:,} are not zero" + (f", {result['ratio']:.1f} times fewer" if kept else "")


def _layers(result: dict[str, Any]) -> list[tuple[str, ...]]:
    rates = result["rates"] or {}
    rows: list[tuple[str, ...]] = []
    for layer in result["layers"]:
        rate = rates.get(layer["name"]) or rates.get(f"{layer['name']}.gate")
        rows.append(
            (
                layer["name"],
                f"{layer['weights']:,}",
                f"{layer['nonzero']:,}",
                f"{100 * (1 - layer['nonzero'] / layer['weights']):.1f}",
                _left(layer, "inputs"),
                _left(layer, "outputs"),
                "–" if rate is None else f"{rate['p']:.3f}",
            )
        )
    return rows


def _left(layer: dict[str, Any], side: str) -> str:
    alive = layer[f"{side}_alive"]
    return f"{'?' if alive is None else alive} of {layer[side]}"
