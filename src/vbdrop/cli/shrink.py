"""``vbdrop shrink``: shrinks your own model to a target size."""

import importlib
import json
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from torch import Tensor, nn

from vbdrop.cli.clusters import check_on, cluster_of
from vbdrop.cli.console import out as console
from vbdrop.cli.console import print_json, usage, verb
from vbdrop.cli.options import TARGET_HELP, WORKERS, AsJson, On
from vbdrop.cli.walk_files import write_walk
from vbdrop.exporting import ExportError
from vbdrop.files import write_atomically
from vbdrop.targets import ShrinkResult, Target, shrink
from vbdrop.targets.losses import default_loss
from vbdrop.targets.run_file import OtherRunError

app = verb()

EXPORTS = ("small.onnx", "small.c")

EXAMPLES = """\b
vbdrop shrink mymodule:make_model --data mymodule:loaders --target macs=5 --epochs 20 --out small/
vbdrop shrink mymodule:make_model --data mymodule:loaders --target "max_bytes=50 kB" --epochs 20 --out small/
vbdrop shrink mymodule:make_model --data mymodule:loaders --target macs=2 --target macs=5 --epochs 20 --out both/
vbdrop shrink mymodule:make_model --data mymodule:loaders --target "weights=3,train=0" --epochs 20 --out small/
"""

CHECKPOINT, RESULT = "run.pt", "result.json"


@dataclass(frozen=True)
class ShrinkRequest:
    """What the command line asks for, with one target; it can be sent to another process.

    Attributes:
        model: The function that makes the model, ``module:function``.
        data: The same for the data.
        loss: The same for the loss; None for the default.
        target: The target, as on the command line.
        epochs: Epochs of the whole run.
        lr: The learning rate.
        batch: Examples per step.
        seed: Seed of data order and noise.
        progress: Whether to show the progress.
        home: A folder that is searched for modules, besides installed ones.
    """

    model: str
    data: str
    loss: str | None
    target: str
    epochs: int
    lr: float
    batch: int
    seed: int
    progress: bool
    home: str


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
        list[str],
        typer.Option(metavar="NAME=VALUE", help=f"{TARGET_HELP} May be repeated.", show_default=False),
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
    on: On = "here",
    as_json: AsJson = False,
) -> None:
    """Shrink your own model to a target size.

    The folder gets the small model as safetensors, as ONNX and C if the model can be exported, larger models kept
    along the way, result.json, and a page that shows how the run got to that size, step by step, and lets you choose
    among these models. If the run is killed, the same command resumes it. With several targets, each gets its own
    subfolder.
    """
    check_on(on)
    requests = {}
    for text in target:
        with usage():
            Target.parse(text)
        folder = out if len(target) == 1 else out / folder_of(text)
        requests[folder] = ShrinkRequest(
            model, data, loss, text, epochs, lr, batch, seed, not as_json and on == "here", str(Path.cwd())
        )
    made = _made_small(requests, on)
    texts = [answer.pop("text") for answer in made]
    if as_json:
        print_json(made[0] if len(made) == 1 else made)
        return
    for answer, text in zip(made, texts, strict=True):
        console().print(text, soft_wrap=True)
        for line in (*answer["files"], *(f"{name}: {why}" for name, why in answer["missing"].items())):
            console().print(line, soft_wrap=True)


def folder_of(target: str) -> str:
    """Return the name of a target's folder.

    Example:
        >>> folder_of("max_latency=2 µs"), folder_of("max_latency=2 s")
        ('max-latency-2-us', 'max-latency-2-s')
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", target.replace("µ", "u"))


def _made_small(requests: dict[Path, ShrinkRequest], on: str) -> list[dict[str, Any]]:
    """Serve all requests, each in its own folder: one after another here, or together on a cluster."""
    if on == "here":
        for folder in requests:
            folder.mkdir(parents=True, exist_ok=True)
        return [make_small(asked, folder, str) for folder, asked in requests.items()]
    with cluster_of(on, WORKERS):
        from vbdrop.integrations.ray import RemoteFolder  # needs ray, which is installed if this is reached

        tasks = [
            RemoteFolder(partial(make_small, asked), folder, CHECKPOINT, RESULT) for folder, asked in requests.items()
        ]
        with ThreadPoolExecutor(len(tasks)) as pool:
            made = list(pool.map(lambda task: task.run(str), tasks))
    for answer, folder in zip(made, requests, strict=True):
        answer["files"] = [f"{folder}/{Path(line.partition(',')[0]).name}" for line in answer["files"]]
    return made


def make_small(asked: ShrinkRequest, folder: Path, say: Callable[[str], Any]) -> dict[str, Any]:
    """Shrink a model as requested.

    Args:
        asked: The request.
        folder: The folder for the files.
        say: Not used: there is nothing to report before the end.

    Returns:
        The figures, the files and what is missing, and a text.
    """
    built = made_model(asked.model, asked.home)
    train, valid = made_data(asked.data, asked.home)
    loss = default_loss if asked.loss is None else found_function(asked.loss, "--loss", asked.home)
    with usage(batch_size="batch"):
        try:
            result = shrink(
                built, train, valid=valid, target=Target.parse(asked.target), epochs=asked.epochs, lr=asked.lr,
                batch_size=asked.batch, seed=asked.seed, checkpoint=folder / CHECKPOINT, progress=asked.progress,
                loss=loss,
            )  # fmt: skip
        except OtherRunError as error:
            raise typer.BadParameter(
                f"{folder / CHECKPOINT} is the checkpoint of another run: choose another --out, or delete the file."
            ) from error
        except TypeError as error:
            raise typer.BadParameter(str(error)) from error
    files, missing = write_files(result, folder)
    figures: dict[str, Any] = json.loads(result.to_json())
    return {**figures, "files": files, "missing": missing, "text": str(result)}


def write_files(result: ShrinkResult, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Write the small model in every format that supports it; return the files, and why others are missing."""
    missing = {}
    files, figures = write_walk(result, folder / "report.html", "small")
    for name in EXPORTS:
        try:
            files.append(str(folder / str(result.export(folder / name))))
        except (ExportError, ImportError, ValueError) as error:
            missing[name] = str(error).splitlines()[0]
    write_atomically(folder / RESULT, json.dumps(figures, indent=1).encode())
    files.append(str(folder / RESULT))
    return files, missing


def found_function(name: str, option: str, home: str = ".") -> Callable[..., Any]:
    """Return the function named by ``module:function``; the module may be in the folder ``home``.

    Example:
        >>> found_function("math:sqrt", "--loss")(9.0)
        3.0
    """
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise typer.BadParameter(f"{option} must look like module:function; got {name!r}.")
    here = str(Path(home).absolute())
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


def made_model(name: str, home: str = ".") -> nn.Module:
    """The model that a function makes."""
    model = found_function(name, "MODULE:FUNCTION", home)()
    if not isinstance(model, nn.Module):
        raise typer.BadParameter(f"{name} must return a torch.nn.Module; it returned {type(model).__name__}.")
    return model


def made_data(name: str, home: str = ".") -> tuple[Any, Any]:
    """The training and validation data that a function makes; None for the second if it makes only the first."""
    data = found_function(name, "--data", home)()
    if isinstance(data, tuple) and len(data) == 2 and not any(isinstance(part, Tensor | np.ndarray) for part in data):
        return data
    if isinstance(data, tuple) and not all(isinstance(part, Tensor | np.ndarray) for part in data):
        raise typer.BadParameter(
            f"{name} must return (train, valid), or train alone; it returned a tuple of {len(data)}."
        )
    if data is None:
        raise typer.BadParameter(f"{name} must return (train, valid), or train alone; it returned None.")
    return data, None
