"""``vbdrop bench``: what a training step costs, as a ratio to the plain network's."""

import statistics
from typing import Annotated

import torch
import typer

from vbdrop.cli.console import err, grid, out, print_json, settings, usage, verb
from vbdrop.cli.options import AsJson, Batch, Model, ModelArg, Threads
from vbdrop.experiments import make_method, resolve
from vbdrop.experiments.cost import WARM_UP, StepTimer
from vbdrop.experiments.environment import processor
from vbdrop.methods import METHODS, method_named
from vbdrop.train import Budget

app = verb()


@app.command()
def bench(
    method: Annotated[
        list[str] | None, typer.Argument(metavar="METHOD", help="The methods; all by default.", show_default=False)
    ] = None,
    model: Model = "lenet-300-100",
    model_arg: ModelArg = None,
    batch: Batch = 100,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Steps per method.")] = 30,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Measure what a training step of each method costs on this machine.

    A step is forward, loss, backward and Adam. The methods take turns, so that a change in the machine's speed affects
    all of them equally. Figures are medians; ratios are to the plain network.
    """
    torch.set_num_threads(threads)
    names = list(dict.fromkeys(["plain", *(method or METHODS)]))
    with usage():
        arguments = settings(model_arg or [])
        timers = {}
        for name in names:
            method_named(name)
            config = resolve(
                make_method(name, {}),
                model=model,
                model_args=arguments,
                data="digits",
                checksum="",
                budget=Budget(batch=batch),
            )
            timers[name] = StepTimer(config, WARM_UP + steps)
    times: dict[str, list[float]] = {name: [] for name in names}
    with err().status(f"measuring {len(names)} methods on {model}"):
        for turn in range(WARM_UP + steps):
            for name, timer in timers.items():
                seconds = timer.step()
                if turn >= WARM_UP:
                    times[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    if as_json:
        print_json(
            {
                "model": model,
                "batch": batch,
                "steps": steps,
                "threads": threads,
                "processor": processor(),
                "torch": torch.__version__,
                "milliseconds": {name: 1e3 * value for name, value in medians.items()},
                "ratio": {name: value / medians["plain"] for name, value in medians.items()},
            }
        )
        return
    rows = [
        (name, METHODS[name].title, f"{1e3 * value:.2f}", f"{value / medians['plain']:.2f}")
        for name, value in medians.items()
    ]
    console = out()
    console.print(grid(("method", "in the tables", "ms per step", "ratio to plain"), rows, left=2))
    plural = "s" if threads > 1 else ""
    console.print(
        f"{model}, batches of {batch}, median of {steps} steps, {threads} thread{plural}, {processor()}, "
        f"torch {torch.__version__}",
        style="dim",
    )
