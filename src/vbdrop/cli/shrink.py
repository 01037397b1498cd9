"""``vbdrop shrink``: shrinks your own model to a target size."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from torch import Tensor, nn

from vbdrop.cli.console import out as console
from vbdrop.cli.console import print_json, usage, verb
from vbdrop.cli.options import TARGET_HELP, AsJson
from vbdrop.cli.report import write_page
from vbdrop.exporting import ExportError
from vbdrop.files import write_atomically
from vbdrop.report import render_walk
from vbdrop.targets import ShrinkResult, Target, shrink
from vbdrop.targets.losses import default_loss

app = verb()

EXPORTS = ("small.onnx", "small.c")

EXAMPLES = """\b
vbdrop shrink mymodule:make_model --data mymodule:loaders --target macs=5 --epochs 20 --out small/
vbdrop shrink mymodule:make_model --data mymodule:loaders --target "max_bytes=50 kB" --epochs 20 --out small/
"""


@app.command("shrink", epilog=EXAMPLES)
def shrink_model(
    model: Annotated[
        str,
        typer.Argument(metavar="MODULE:FUNCTION", help="A function that returns the model.", show_default=False),
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="A function that returns (train, valid), or only train.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Option(metavar="NAME=VALUE", help=TARGET_HELP, show_default=False),
    ],
    epochs: Annotated[int, typer.Option(metavar="N", help="Epochs of the whole run.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the files.", show_default=False)],
    lr: Annotated[float, typer.Option(metavar="RATE", help="The learning rate of the weights.")] = 1e-3,
    batch: Annotated[int, typer.Option(metavar="N", help="Examples per step, for data without batches.")] = 100,
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="loss(outputs, targets); by default cross-entropy or squared error.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of data order and noise.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Shrink your own model to a target size.

    The folder gets the small model as safetensors, as ONNX and C if the model can be exported, result.json, and a page
    with the walk to that size. If the run is killed, the same command resumes it.
    """
    with usage():
        wanted = Target.parse(target)
    built = made_model(model)
    train, valid = made_data(data)
    chosen_loss = default_loss if loss is None else found_function(loss, "--loss")
    out.mkdir(parents=True, exist_ok=True)
    with usage():
        try:
            result = shrink(
                built, train, valid=valid, target=wanted, epochs=epochs, lr=lr, batch_size=batch, seed=seed,
                checkpoint=out / "run.pt", progress=not as_json, loss=chosen_loss,
            )  # fmt: skip
        except TypeError as error:
            raise typer.BadParameter(str(error)) from error
    files, missing = write_files(result, out)
    if as_json:
        print_json({**json.loads(result.to_json()), "files": files, "missing": missing})
        return
    console().print(str(result), soft_wrap=True)
    for line in (*files, *(f"{name}: {why}" for name, why in missing.items())):
        console().print(line, soft_wrap=True)


def write_files(result: ShrinkResult, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Write the small model in every format that supports it; return the files, and why others are missing."""
    files, missing = [], {}
    size = result.save(folder / "small.safetensors")
    files.append(f"{folder / 'small.safetensors'}, {size:,} bytes")
    for name in EXPORTS:
        try:
            files.append(str(result.export(folder / name)))
        except (ExportError, ImportError, ValueError) as error:
            missing[name] = str(error).splitlines()[0]
    write_atomically(folder / "result.json", result.to_json().encode())
    files.append(str(folder / "result.json"))
    files.append(f"{write_page(render_walk(result.figures()), folder / 'report.html')}, the walk: open it in a browser")
    return files, missing


def found_function(name: str, option: str) -> Callable[..., Any]:
    """Return the function named by ``module:function``; the module may be in the current folder.

    Example:
        >>> found_function("math:sqrt", "--loss")(9.0)
        3.0
    """
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise typer.BadParameter(f"{option} must look like module:function; got {name!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.split(".")[0] == error.name.split(".")[0]:
            raise typer.BadParameter(f"{option}: there is no module {module_name!r} here.") from error
        raise
    found = getattr(module, attribute, None)
    if not callable(found):
        raise typer.BadParameter(f"{option}: {module_name!r} has no function {attribute!r}.")
    return found  # type: ignore[no-any-return]


def made_model(name: str) -> nn.Module:
    """The model that a function makes."""
    model = found_function(name, "MODULE:FUNCTION")()
    if not isinstance(model, nn.Module):
        raise typer.BadParameter(f"{name} must return a torch.nn.Module; it returned {type(model).__name__}.")
    return model


def made_data(name: str) -> tuple[Any, Any]:
    """The training and validation data that a function makes; None for the second if it makes only the first."""
    data = found_function(name, "--data")()
    if isinstance(data, tuple) and len(data) == 2 and not any(isinstance(part, Tensor | np.ndarray) for part in data):
        return data
    if isinstance(data, tuple) and not all(isinstance(part, Tensor | np.ndarray) for part in data):
        raise typer.BadParameter(
            f"{name} must return (train, valid), or train alone; it returned a tuple of {len(data)}."
        )
    if data is None:
        raise typer.BadParameter(f"{name} must return (train, valid), or train alone; it returned None.")
    return data, None
