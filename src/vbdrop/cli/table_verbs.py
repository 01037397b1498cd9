"""The shared part of the table verbs: run what is missing, estimate its cost, print what exists."""

import json
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.table import Table as RichTable
from rich.text import Text

from vbdrop.cli.app import STOPPED
from vbdrop.cli.clusters import check_on, cluster_of
from vbdrop.cli.console import err, grid, out, print_json, usage
from vbdrop.cli.narrow_tables import fitted, whole_width
from vbdrop.cli.run_progress import Bars, Lines, network
from vbdrop.experiments import Book, Config, Protocol, Runner, Table, checksums, markdown
from vbdrop.experiments import table as read_table
from vbdrop.experiments.cost import estimate
from vbdrop.experiments.runner import Processes
from vbdrop.experiments.step_times import StepTimes, default_file
from vbdrop.experiments.table_text import NOT_RUN, PAPER, missing, notes, questions, sheets
from vbdrop.files import write_atomically
from vbdrop.sheets import Sheet
from vbdrop.train.epoch_words import duration

RECORDS, QUICK_RECORDS = Path("records"), Path("runs/quick")


@dataclass(frozen=True)
class Asked:
    """What a command line asks of a table.

    Attributes:
        run: Make the runs that are missing.
        cost: Estimate what they would cost, without making them.
        defaults: Make them without trials.
        seeds: How many seeds; None for those of the table.
        rows: Only these rows; all if there are none.
        columns: Only these columns.
        workers: How many processes.
        on: Where the processes run; see :mod:`vbdrop.cli.clusters`.
        records: The folder of records; None for the usual one.
        data_dir: Where the data are.
        keep_weights: Keep the trained models.
        as_json: Print JSON.
        output: The files to write the table to.
    """

    run: bool = False
    cost: bool = False
    defaults: bool = False
    seeds: int | None = None
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    workers: int = 1
    on: str = "here"
    records: Path | None = None
    data_dir: Path | None = None
    keep_weights: bool = False
    as_json: bool = False
    output: Sequence[Path] = ()

    @property
    def options(self) -> str:
        """The options that a command must repeat to resume this one."""
        said = "" if self.seeds is None else f" --seeds {self.seeds}"
        return said if self.records is None else f"{said} --records {shlex.quote(str(self.records))}"


def answer(protocol: Protocol, asked: Asked) -> None:
    """Do what was asked of a table, and print it.

    Args:
        protocol: The table.
        asked: What was asked.
    """
    folder = asked.records or (QUICK_RECORDS if protocol.quick else RECORDS)
    with usage():
        if asked.seeds is not None:
            protocol = protocol.with_seeds(asked.seeds)
        if asked.defaults and not (asked.run or asked.cost or protocol.quick):
            raise ValueError("`--defaults` says how to run: it needs --run, --cost or --quick.")
        Processes(asked.workers)
        check_on(asked.on)
        for path in asked.output:
            check_output(path)
        for key in asked.rows:
            protocol.row(key)
        for key in asked.columns:
            protocol.column(key)
    part = asked.rows, asked.columns
    if not (asked.run or protocol.quick or asked.cost):
        _show(read_table(Book(protocol, folder), *part), asked)
        return
    book = Book(protocol, folder, checksums(protocol, asked.data_dir))
    runs = (book.without_trials if asked.defaults else book.expected)(*part)
    with err().status("measuring a few steps of every method"):
        seconds = estimate(runs, asked.data_dir, StepTimes(default_file()))
    if asked.cost:
        _print_costs(runs, seconds, asked.workers, asked.as_json)
        return
    missing_runs = book.without_trials if asked.defaults else book.missing
    failed = bool(runs) and _make(folder, asked, lambda: missing_runs(*part), runs, seconds)
    _show(read_table(book, *part), asked)
    if failed:
        raise typer.Exit(1)


def _make(
    folder: Path, asked: Asked, missing: Callable[[], Sequence[Config]], runs: list[Config], seconds: list[float]
) -> bool:
    """Make the runs and show their progress; return whether any of them failed."""
    console = err()
    with cluster_of(asked.on, asked.workers) as cluster:
        runner = Runner(folder, cluster=cluster, data_dir=asked.data_dir, keep_weights=asked.keep_weights)
        processes = f"{runner.workers} process" + ("es" if runner.workers > 1 else "")
        wall = max(sum(seconds) / runner.workers, *seconds)
        count = f"{len(runs)} run" + ("s" if len(runs) > 1 else "")
        console.print(f"{count} to make: about {duration(wall)} with {processes}, from measured steps.")
        with Bars(console, runs, seconds) if console.is_terminal else Lines(console, len(runs)) as runner.watcher:
            try:
                summary = runner.make(missing)
            except KeyboardInterrupt:
                console.print("Stopped. The same command resumes it.")
                raise typer.Exit(STOPPED) from None
    return bool(summary.failed)


WRITERS: dict[str, Callable[[Table], str]] = {
    ".md": markdown,
    ".json": lambda table: json.dumps(table.as_dict(), indent=2, allow_nan=False) + "\n",
}
"""The ending of a file -> the text of a table in it."""


def check_output(path: Path) -> None:
    """Check, before anything is run, that a table can be written to a file.

    Raises:
        ValueError: Its ending is not known, or its folder does not exist.

    Example:
        >>> check_output(Path("table.pdf"))
        Traceback (most recent call last):
        ValueError: `--output` must end in .md or .json; got 'table.pdf'.
    """
    if path.suffix not in WRITERS:
        raise ValueError(f"`--output` must end in {' or '.join(WRITERS)}; got {str(path)!r}.")
    if not path.parent.is_dir():
        raise ValueError(f"`--output` must lie in a folder that exists; there is no folder {str(path.parent)!r}.")


def _show(table: Table, asked: Asked) -> None:
    """Print a table, and write it to the files that were asked for."""
    for path in asked.output:
        write_atomically(path, WRITERS[path.suffix](table).encode())
    if asked.as_json:
        print_json(table.as_dict())
        return
    console = out()
    console.print(Text(f"{table.protocol.name}: {table.protocol.title}", style="bold"))
    for sheet in sheets(table):
        for part in fitted(sheet, console.width):
            title = None if sheet.title == table.protocol.title else sheet.title
            out(max(whole_width(part), console.width)).print(_grid(part, title=title))
    for title, question in questions(table):
        console.print(Text.assemble((f"{title}: ", "bold"), question))
    for note in notes(table):
        console.print(note, style="dim")
    if commands := missing(table, asked.options):
        console.print("Still to run:", style="yellow")
        for command in commands:
            console.print(f"  {command}", soft_wrap=True)
    if asked.output:
        console.print(f"Written to {' and '.join(map(str, asked.output))}", style="dim", soft_wrap=True)


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
    """Print what runs would cost, one line for each method on each network."""
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
    if any(config.budget.shrink_every is not None for config in runs):
        console.print("Runs that remove dead units get cheaper as they train; the estimate includes a typical saving.")
