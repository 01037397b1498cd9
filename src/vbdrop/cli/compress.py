"""``vbdrop compress``: a smaller network from a trained one."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from vbdrop.cli.console import grid, out, print_json, usage, verb
from vbdrop.cli.options import TARGET_HELP, AsJson, DataDir
from vbdrop.cli.small_network import exported, measured, shrunk, smaller
from vbdrop.cli.walk_files import write_walk
from vbdrop.compression import Compressed
from vbdrop.experiments import Record
from vbdrop.exporting.exporting import check_format, check_place
from vbdrop.targets import Target

app = verb()

EXAMPLES = """\b
vbdrop train vbd-weights
vbdrop compress runs/vbd-weights-lenet-300-100-digits-* --save small.safetensors --export small.onnx
vbdrop compress runs/plain-lenet-300-100-digits-* --target macs=5 --epochs 10 --page walk.html
"""


@app.command(epilog=EXAMPLES)
def compress(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a run, with its weights.", show_default=False)
    ],
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="LOG_ALPHA",
            help="Log alpha at or above which a weight is dead; by default as trained.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(metavar="NAME=VALUE", help=TARGET_HELP, show_default=False)] = None,
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Epochs of further training, to reach --target.", show_default=False),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page on how the run got to --target: .html.", show_default=False),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the small network: .safetensors.", show_default=False)
    ] = None,
    export: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Write it for another runtime: .onnx, .pt2 or .c; may be repeated.", show_default=False
        ),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure bytes and latency, and keep them with the run, for its report.")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove what a trained network does not need.

    The result is a plain torch network with the same outputs. The error is measured before and after. With --target,
    the network is trained further until it meets that target.
    """
    check_files(save, export or [])
    wanted = _wanted(target, epochs, threshold, page)
    record = Record(run)
    config = record.config
    if wanted is None or epochs is None:
        small = smaller(record, threshold, data_dir)
    else:
        with usage():
            small, walked = shrunk(record, wanted, epochs, data_dir)
        if page is not None:
            write_walk(walked, page, page.stem)
    errors = (record.result["error"], small.error)
    with usage():
        exports = exported(small, export or [])  # first, since a format may not support everything in the network
        files = [] if save is None else [f"{save}, {small.network.save(save):,} bytes"]
    files += [str(file) for file in exports.written]
    found = measured(record, small, exports, data_dir=data_dir) if measure else None
    if as_json:
        summary = small.network.summary()
        print_json({
            "run": config.id, "error": dict(zip(("before", "after"), errors, strict=True)),
            "before": asdict(summary.before), "after": asdict(summary.after), "left": small.network.left,
            "files": files, "missing": exports.missing, "measured": found,
        })  # fmt: skip
        return
    console = out()
    console.print(comparison(small.network, config.evaluated_on, *errors))
    console.print(Text(str(small.network.summary())), soft_wrap=True)
    for line in (*files, *(f"{name}: {why}" for name, why in exports.missing.items())):
        console.print(line, soft_wrap=True)
    if found is not None:
        console.print(latencies(found))
        console.print(f"Kept with the run. To see it: vbdrop report {run}", style="dim", soft_wrap=True)


def _wanted(target: str | None, epochs: int | None, threshold: float | None, page: Path | None) -> Target | None:
    """The target, if there is one, after checking the options that go with it."""
    if (target is None) != (epochs is None):
        raise typer.BadParameter(
            "--target and --epochs belong together: the network is trained until it is that small."
        )
    if target is None and page is not None:
        raise typer.BadParameter("--page is for --target; for the run itself, use vbdrop report.")
    if target is not None and threshold is not None:
        raise typer.BadParameter("give --target or --threshold, not both.")
    with usage():
        return None if target is None else Target.parse(target)


def check_files(save: Path | None, exports: Sequence[Path]) -> None:
    """Check that all files can be written, so that the command never stops halfway.

    Raises:
        typer.BadParameter: A file has an unknown ending, or its folder does not exist.
        ImportError: A package needed to write a file is not installed.
    """
    checks = [("--save", check_place, save)] if save is not None else []
    checks += [("--export", check_format, path) for path in exports]
    for option, check, path in checks:
        try:
            check(path)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=option) from error


def latencies(found: dict[str, Any]) -> Any:  # noqa: ANN401 -- a rich table
    """Lay out the measurements: bytes and latency of each way to run the network."""
    batches = list(found["rows"][0]["microseconds"])
    rows = [
        (row["name"], f"{row['bytes']:,}", *(f"{row['microseconds'][batch]:,.1f} µs" for batch in batches))
        for row in found["rows"]
    ]
    return grid(("one thread", "bytes", *(f"batch of {batch}" for batch in batches)), rows)


def comparison(small: Compressed, where: str, error_before: float, error_after: float) -> Any:  # noqa: ANN401 -- a rich table
    """Lay out the effect of a compression: error, weights, bytes and multiplications, before and after.

    Args:
        small: The small network.
        where: On which data the errors were measured: ``"validation"`` or ``"test"``.
        error_before: The error of the network that was given, in percent.
        error_after: The error of the small one.
    """
    before, after = small.summary().before, small.summary().after
    rows = [(f"{where} error", f"{error_before:.2f} %", f"{error_after:.2f} %", "")]
    for name, field in (
        ("weights", "weights"),
        ("not zero", "nonzeros"),
        ("bytes", "bytes"),
        ("multiplications", "macs"),
    ):
        old, new = getattr(before, field), getattr(after, field)
        if old is not None and new is not None:
            rows.append((name, f"{old:,}", f"{new:,}", f"{old / new:.1f} times fewer" if new else "none left"))
    return grid(("", "before", "after", ""), rows)
