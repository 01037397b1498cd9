"""``vbdrop compress``: a smaller network from a trained one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.text import Text
from torch import Tensor

from vbdrop.cli.console import grid, out, print_json, usage
from vbdrop.cli.options import AsJson, DataDir, verb
from vbdrop.compression import Compressed
from vbdrop.compression import compress as remove
from vbdrop.compression.pack import save as save_model
from vbdrop.experiments import Config, Record, trained_model
from vbdrop.experiments.inputs import examples
from vbdrop.exporting import export as export_model
from vbdrop.models import MODELS
from vbdrop.objective import noisy_tensors
from vbdrop.train import evaluate

app = verb()

EXAMPLES = """\b
vbdrop train vbd-weights
vbdrop compress runs/vbd-weights-lenet-300-100-digits-* --save small.safetensors --export small.onnx
"""


@app.command(epilog=EXAMPLES)
def compress(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, with its weights.", show_default=False)],
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="LOG_ALPHA",
            help="What has at least this log alpha is dead; else as it was trained.",
            show_default=False,
        ),
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
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Take out of a trained network what it does not need.

    What comes back is a plain torch network with the same outputs. Its error is measured, before and after.
    """
    record = Record(run)
    config = record.config
    example = torch.zeros(1, *MODELS[config.model].input_shape)
    small = _small(record, config, threshold, example)
    test = examples(config, data_dir).test
    errors = [record.result["error"], evaluate(small.model, test).error]
    with usage():
        files = _written(small, config, example, save, export or [])
    if as_json:
        summary = small.summary()
        print_json({
            "run": config.id, "error": {"before": errors[0], "after": errors[1]},
            "before": asdict(summary.before), "after": asdict(summary.after), "left": small.left, "files": files,
        })  # fmt: skip
        return
    console = out()
    console.print(comparison(small, *errors))
    console.print(Text(str(small.summary())), soft_wrap=True)
    for line in files:
        console.print(line, soft_wrap=True)


def _small(record: Record, config: Config, threshold: float | None, example: Tensor) -> Compressed:
    model = trained_model(record)
    if threshold is None:
        return remove(config.build_method().finish(model), example)
    if next(noisy_tensors(model), None) is None:
        raise typer.BadParameter(f"--threshold is for networks with learned rates; {config.method} has none.")
    return remove(model, example, threshold)


def _written(small: Compressed, config: Config, example: Tensor, save: Path | None, exports: list[Path]) -> list[str]:
    """Write the files that were asked for, and say what each is."""
    lines = []
    if save is not None:
        size = save_model(save, small.model, small.plan, arguments=dict(config.model_args))
        lines.append(f"{save}, {size:,} bytes")
    return lines + [str(export_model(small.model, path, example)) for path in exports]


def comparison(small: Compressed, error_before: float, error_after: float) -> Any:  # noqa: ANN401 -- a rich table
    """Lay out what a compression did: error, weights, bytes and multiplications, before and after."""
    before, after = small.summary().before, small.summary().after
    rows = [("test error", f"{error_before:.2f} %", f"{error_after:.2f} %", "")]
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
