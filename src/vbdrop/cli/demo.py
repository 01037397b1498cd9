"""``vbdrop demo``: the whole package in two minutes, on the digits that come with it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.text import Text

from vbdrop.cli.app import STOPPED
from vbdrop.cli.console import err, grid, out, usage, verb
from vbdrop.cli.demo_targets import in_words, show_targets
from vbdrop.cli.options import DataDir
from vbdrop.cli.report import write_page
from vbdrop.cli.run_display import reporting
from vbdrop.cli.small_network import Exports, Small, exported, measured, smaller
from vbdrop.cli.train import report
from vbdrop.experiments import Config, Record, execute, make_method, record_of, resolve
from vbdrop.experiments.inputs import facts
from vbdrop.models import build
from vbdrop.report import render_report
from vbdrop.train import Budget, Epoch, weight_layers

app = verb()


EPOCHS = {"lenet-300-100": 40, "lenet-500-300": 30, "lenet-5": 6}
"""The networks, and how long each is trained: two minutes for both runs on two cores, on the embedded digits."""

DATA = ("digits", "mnist")

HYPER: dict[tuple[str, str], dict[str, float]] = {
    ("digits", "vbd-weights"): {"kl_weight": 0.2},
    ("digits", "vbd-gates"): {"kl_weight": 4.0, "gate_lr": 4.0},
}
"""Data and method -> settings that differ from the method's defaults. The KL is divided by the number of examples: with
8,000 instead of 60,000 its usual weight removes too much, and there are fewer steps in which the gates can close."""

EXAMPLES = """\b
vbdrop demo
vbdrop demo --units              fewer neurons instead of fewer weights
vbdrop demo --model lenet-5      a convolutional network
vbdrop demo --data mnist         all 60,000 digits, after vbdrop data get mnist
"""


@app.command(epilog=EXAMPLES)
def demo(
    data: Annotated[str, typer.Option(metavar="NAME", help=f"The digits: {' or '.join(DATA)}.")] = "digits",
    model: Annotated[str, typer.Option(metavar="NAME", help=f"The network: {', '.join(EPOCHS)}.")] = "lenet-300-100",
    units: Annotated[bool, typer.Option("--units", help="Remove whole neurons or channels, not weights.")] = False,
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Epochs per network; by default about two minutes in all.", show_default=False),
    ] = None,
    records: Annotated[Path, typer.Option(metavar="DIR", help="The folder for all files.")] = Path("runs/demo"),
    data_dir: DataDir = None,
) -> None:
    """See it work: train, remove what is not needed, export, measure, and write a report page.

    A network is trained twice on handwritten digits: plainly, and with Variational Bayesian Dropout, in which every
    weight learns its own dropout rate. The weights that carry only noise are then removed. By default, two networks
    are then shrunk to a target: the plain one, and a convolutional one. All figures were measured in this run.
    """
    torch.set_num_threads(1)
    say = err()
    with usage():
        plain, pruned = _configs(data, model, units, epochs, data_dir)
    try:
        runs = [_run(say, config, records, data_dir) for config in (plain, pruned)]
    except KeyboardInterrupt:
        say.print("Stopped. The same command resumes it.")
        raise typer.Exit(STOPPED) from None
    for record in runs:
        if record.result["outcome"] != "finished":
            raise typer.BadParameter(f"the run diverged; see {record.folder}")
    before, after = runs
    stem = records / f"{pruned.model}{'-units' if units else ''}"
    with say.status("removing what is not needed, exporting and measuring"):
        small = smaller(after, data_dir=data_dir)
        saved = stem.with_suffix(".safetensors")
        size = small.network.save(saved)
        exports = exported(small, [stem.with_suffix(".onnx"), stem.with_suffix(".c")], skip_missing=True)
        found = measured(after, small, exports, before, data_dir)
        page = write_page(render_report([after.folder, before.folder]), stem.with_suffix(".html"))
    console = out()
    console.print(Text("What the network learned", style="bold"))
    console.print(report(after))
    console.print()
    console.print(Text("The plain network and the compressed one", style="bold"))
    console.print(grid(("", "before", "after", ""), ending(before.result, small, found)))
    console.print(_files(saved, size, exports, page), soft_wrap=True)
    if not units and model == "lenet-300-100":
        with usage():
            show_targets(console, before, records, epochs, data_dir)


def _configs(data: str, name: str, units: bool, epochs: int | None, data_dir: Path | None) -> tuple[Config, Config]:
    """Return the settings of the plain run and of the run that learns its rates."""
    if name not in EPOCHS:
        raise ValueError(f"--model must be one of {', '.join(EPOCHS)}; got {name!r}.")
    if data not in DATA:
        raise ValueError(f"--data must be {' or '.join(DATA)}; got {data!r}.")
    method = "vbd-gates" if units else "vbd-weights"
    plain, pruned = (
        resolve(
            chosen,
            model=name,
            data=data,
            checksum=facts(data, data_dir).checksum,
            budget=Budget(epochs=EPOCHS[name] if epochs is None else epochs),
        )
        for chosen in (make_method("plain", {}), make_method(method, HYPER.get((data, method), {})))
    )
    return plain, pruned


def _run(say: Console, config: Config, records: Path, data_dir: Path | None) -> Record:
    record = record_of(config, records)
    if record.finished:
        say.print(f"{record.folder} is already trained.", style="dim", soft_wrap=True)
        return record
    title = "1/2 plain" if config.method == "plain" else "2/2 VBD  "
    with reporting(title, say, sayer(config)) as show:
        return execute(config, records, data_dir=data_dir, report=show, keep_weights=True)


def sayer(config: Config) -> Callable[[Epoch | None], str]:
    """Return a function that describes an epoch: its error and the zeros of each layer.

    Example:
        >>> from vbdrop.train import Evaluation, Sparsity
        >>> run, _ = _configs("digits", "lenet-300-100", False, None, None)
        >>> left = {"hidden.0": 2352, "hidden.1": 1500, "output": 700}
        >>> sayer(run)(Epoch(3, 0.2, 1.0, 1.0, None, Evaluation(1000, 17, 0.1, 0.0), Sparsity(266_200, left)))
        'error 1.70 %  zeros 99.0-95.0-30.0 %'
    """
    sizes = {name: layer.weight.numel() for name, layer in weight_layers(build(config.model, **config.model_args))}

    def say(epoch: Epoch | None) -> str:
        if epoch is None or epoch.evaluation is None or epoch.sparsity is None:
            return ""
        text = f"error {epoch.evaluation.error:.2f} %"
        if epoch.sparsity.kept == epoch.sparsity.weights:
            return text
        zeros = (100 * (1 - kept / sizes[name]) for name, kept in epoch.sparsity.nonzero.items())
        return f"{text}  zeros {'-'.join(f'{share:.1f}' for share in zeros)} %"

    return say


def ending(before: dict[str, Any], small: Small, found: dict[str, Any]) -> list[tuple[str, ...]]:
    """Lay out the measurements: error, weights, file and latency, before and after.

    Args:
        before: The result of the plain run.
        small: The small network.
        found: The measurements of both.
    """
    counts = small.network.summary().after
    measured_rows = {row["name"]: row for row in found["rows"]}
    original, packed = measured_rows["original, PyTorch"], measured_rows["small, PyTorch"]
    rows: list[tuple[str, ...]] = [
        ("test error", f"{before['error']:.2f} %", f"{small.error:.2f} %", ""),
        ("weights", f"{before['weights']:,}", f"{counts.nonzeros:,}",
         f"{before['weights'] / max(1, counts.nonzeros):.1f} times fewer"),
        ("bytes of the file", f"{original['bytes']:,}", f"{packed['bytes']:,}",
         f"{original['bytes'] / packed['bytes']:.1f} times fewer"),
    ]  # fmt: skip
    for runtime in ("PyTorch", "ONNX Runtime", "C"):
        new = measured_rows.get(f"small, {runtime}")
        title = f"one digit, {runtime}"
        if new is None:
            rows.append((title, "–", "not measured", found["missing"].get(f"small, {runtime}", "")))
            continue
        same = measured_rows.get(f"original, {runtime}")
        old, than = same or original, "" if same else " than PyTorch"
        times = old["microseconds"]["1"] / new["microseconds"]["1"]
        shown = f"{old['microseconds']['1']:.1f} µs" if same else "–"
        rows.append((title, shown, f"{new['microseconds']['1']:.1f} µs", f"{in_words(times)}{than}"))
    return rows


def _files(saved: Path, size: int, exports: Exports, page: Path) -> Text:
    lines: list[Sequence[str]] = [(str(saved), f"{size:,} bytes; vbdrop.load reads it")]
    for file in exports.written:
        said = f"largest difference {file.difference:.0e}" if file.verified else f"not run: {file.note}"
        lines.append((" and ".join(map(str, file.paths)), f"{file.bytes:,} bytes, {said}"))
    lines.append((str(page), "the report: open it in a browser"))
    width = max(len(path) for path, _ in lines)
    return Text("\n").join(Text.assemble((f"{path:<{width}}", "bold"), f"  {said}") for path, said in lines)
