"""``vbdrop table``: a table of the paper, ours beside it."""

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable
from rich.text import Text

from vbdrop.cli.app import STOPPED
from vbdrop.cli.console import err, grid, out, print_json, usage, verb
from vbdrop.cli.fitting import fitted
from vbdrop.cli.options import AsJson, DataDir
from vbdrop.cli.watching import Bars, Lines, network
from vbdrop.experiments import Book, Config, Runner, Table, checksums, layout, markdown, protocol_of
from vbdrop.experiments import table as read_table
from vbdrop.experiments.cost import estimate
from vbdrop.experiments.sheets import NOT_RUN, PAPER, Sheet, chosen, missing, notes
from vbdrop.train.files import write_atomically
from vbdrop.train.progress import duration

app = verb()

RECORDS, QUICK_RECORDS = Path("records"), Path("runs/quick")
WORKERS = min(os.cpu_count() or 1, 4)


EXAMPLES = """\b
vbdrop table 4                    what has been recorded
vbdrop table 4 --run --workers 2  run the rest; may be stopped and started again at will
vbdrop table 4 --quick            everything small, on digits that come with the package
"""


@app.command(epilog=EXAMPLES)
def table(
    number: Annotated[
        int, typer.Argument(metavar="N", help="1 MNIST, 2 CIFAR-10, 3 SVHN, 4 weights, 5 neurons.", show_default=False)
    ],
    run: Annotated[bool, typer.Option("--run", help="Make the runs that are missing first.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run everything small, in minutes: to see that it works.")
    ] = False,
    cost: Annotated[bool, typer.Option("--cost", help="Say what the missing runs would cost, and run none.")] = False,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Run without trials, with each method's default settings.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="How many seeds; else as the table has it.", show_default=False)
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Only this row; may be repeated.", show_default=False)
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Only this column; may be repeated.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Processes, each with one thread.")] = WORKERS,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=f"The folder of records: {RECORDS}, or {QUICK_RECORDS} with --quick.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    keep_weights: Annotated[bool, typer.Option("--keep-weights", help="Keep all trained weights.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a table of the paper with our figures beside it; run what is missing.

    Hyper-parameters are chosen on held-out training data, with the same number of trials for every method; then the
    network is trained on all training data and tested once, after the last epoch.
    """
    rows, columns = row or [], column or []
    folder = records or (QUICK_RECORDS if quick else RECORDS)
    with usage():
        protocol = protocol_of(number, quick=quick)
        if seeds is not None:
            protocol = protocol.with_seeds(seeds)
        runner = Runner(folder, workers=workers, data_dir=data_dir, keep_weights=keep_weights)
        for key in rows:
            protocol.row(key)
        for key in columns:
            protocol.column(key)
    if not (run or quick or cost):
        _show(read_table(Book(protocol, folder), rows, columns), folder, as_json)
        return
    book = Book(protocol, folder, checksums(protocol, data_dir))
    runs = (book.without_trials if defaults else book.expected)(rows, columns)
    with err().status("measuring a few steps of every method"):
        seconds = estimate(runs, data_dir)
    if cost:
        _print_costs(runs, seconds, workers, as_json)
        return
    missing_runs = book.without_trials if defaults else book.missing
    failed = bool(runs) and _make(runner, lambda: missing_runs(rows, columns), runs, seconds)
    _show(read_table(book, rows, columns), folder, as_json)
    if failed:
        raise typer.Exit(1)


def _make(runner: Runner, missing: Callable[[], Sequence[Config]], runs: list[Config], seconds: list[float]) -> bool:
    """Make the runs, watched; return whether one of them failed."""
    console = err()
    processes = f"{runner.workers} process" + ("es" if runner.workers > 1 else "")
    wall = max(sum(seconds) / runner.workers, *seconds)
    console.print(f"{len(runs)} runs to make: about {duration(wall)} with {processes}, from steps measured just now.")
    with Bars(console, runs, seconds) if console.is_terminal else Lines(console, len(runs)) as runner.watcher:
        try:
            summary = runner.make(missing)
        except KeyboardInterrupt:
            console.print("Stopped. The same command goes on with it.")
            raise typer.Exit(STOPPED) from None
    return bool(summary.failed)


def _show(table: Table, folder: Path, as_json: bool) -> None:
    """Print a table, and write it beside its records if there are any and it is whole."""
    whole = len(table.cells) == len(table.protocol.rows) * len(table.protocol.columns)
    written = []
    if whole and folder.is_dir():
        contents = {".md": markdown(table), ".json": json.dumps(table.as_dict(), indent=2, allow_nan=False) + "\n"}
        for ending, text in contents.items():
            written.append(folder / f"table-{table.protocol.number}{ending}")
            write_atomically(written[-1], text.encode())
    if as_json:
        print_json(table.as_dict())
        return
    console = out()
    console.print(Text(f"Table {table.protocol.number}: {table.protocol.title}", style="bold"))
    selection = chosen(table)
    for sheet in [*layout(table), *([selection] if selection is not None else [])]:
        for part in fitted(sheet, console.width):
            console.print(_grid(part, title=None if sheet.title == table.protocol.title else sheet.title))
    for note in notes(table):
        console.print(note, style="dim")
    if commands := missing(table):
        console.print("Not run yet:", style="yellow")
        for command in commands:
            console.print(f"  {command}", soft_wrap=True)
    if written:
        console.print(f"Written to {' and '.join(map(str, written))}", style="dim", soft_wrap=True)


def _grid(sheet: Sheet, title: str | None) -> RichTable:
    rows = [
        [Text(cell, style=_style(name, cell, ours)) for name, cell in zip(sheet.header, row, strict=True)]
        for row, ours in zip(sheet.rows, sheet.ours, strict=True)
    ]
    return grid(sheet.header, rows, title=title)


def _style(column: str, cell: str, ours: bool) -> str:
    if column == PAPER:
        return "dim"
    if cell in (NOT_RUN, "diverged"):
        return "yellow"
    return "bold" if ours else ""


def _print_costs(runs: list[Config], seconds: list[float], workers: int, as_json: bool) -> None:
    """Print what runs would cost, a line for each method on each network."""
    kinds: dict[tuple[str, str], list[tuple[bool, float]]] = {}
    for config, cost in zip(runs, seconds, strict=True):
        kinds.setdefault((config.method, network(config)), []).append((config.n_valid > 0, cost))
    lines = [
        (method, name, sum(trial for trial, _ in costs), len(costs), costs[-1][1], math.fsum(cost for _, cost in costs))
        for (method, name), costs in kinds.items()
    ]
    if as_json:
        names = ("method", "network", "trials", "runs", "seconds_a_run", "seconds")
        print_json([dict(zip(names, line, strict=True)) for line in lines])
        return
    rows = [
        (method, name, str(trials), str(n), duration(one), duration(a)) for method, name, trials, n, one, a in lines
    ]
    wall = max(math.fsum(seconds) / workers, *seconds, 0.0)
    console = out()
    console.print(grid(("method", "network", "trials", "runs", "one run", "together"), rows, left=2))
    console.print(
        f"{len(runs)} runs: {duration(math.fsum(seconds))} of one core, {duration(wall)} with --workers {workers}."
    )
