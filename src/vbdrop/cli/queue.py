"""``vbdrop queue``: make the missing runs of all tables and ablations, the most informative first."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vbdrop.cli.app import STOPPED
from vbdrop.cli.clusters import check_on, cluster_of
from vbdrop.cli.console import err, grid, out, print_json, usage, verb
from vbdrop.cli.options import AsJson, Cost, DataDir, On, Workers
from vbdrop.cli.run_progress import Bars, Lines, title
from vbdrop.cli.table_verbs import QUICK_RECORDS, RECORDS
from vbdrop.experiments import PROTOCOLS, Book, Runner, Table, ablations, checksums, protocol_of
from vbdrop.experiments import table as read_table
from vbdrop.experiments.cost import Costs
from vbdrop.experiments.run_order import QueuedRun, queued
from vbdrop.experiments.runner import Processes
from vbdrop.experiments.step_times import StepTimes, default_file
from vbdrop.train.epoch_words import duration

app = verb()

SHOWN = 12
"""How many of the runs that come first are listed with ``--cost``."""

EXAMPLES = """\b
vbdrop queue --workers 2 --hours 8   if stopped or killed, the same command resumes
vbdrop queue --cost                  what is missing, in which order, and what it costs
vbdrop queue --table 4 --table 5     some tables only; 0 for the ablations
"""


@app.command(epilog=EXAMPLES)
def queue(
    workers: Workers = 1,
    on: On = "here",
    hours: Annotated[
        float, typer.Option(metavar="H", help="Stop after this many hours; the next call resumes what was running.")
    ] = math.inf,
    table: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Only this table, 1 to 5, or 0 for the ablations; may be repeated."),
    ] = None,
    cost: Cost = False,
    quick: Annotated[bool, typer.Option("--quick", help="Run small versions of the tables, to see that it works.")] = (
        False
    ),
    records: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of records.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make all missing runs of the paper's tables and the ablations, the most informative first.

    First come the runs that give cells of the paper their first figure, at the least cost per cell: the trials on
    held-out training data, then the run with the chosen setting. Then come further seeds, rows that the paper does not
    have, and ablations. Step times are measured once, and kept for a week.
    """
    folder = records or (QUICK_RECORDS if quick else RECORDS)
    with usage():
        if not hours > 0:
            raise ValueError(f"`--hours` must be above 0; got {hours:g}.")
        Processes(workers)
        check_on(on)
        numbers = table or [*PROTOCOLS, 0]
        protocols = [protocol_of(number, quick=quick) if number else ablations(quick=quick) for number in numbers]
    books = [Book(each, folder, checksums(each, data_dir)) for each in protocols]
    costs = Costs(data_dir, StepTimes(default_file()))
    with err().status("measuring a few steps of every method"):
        waiting = queued(books, costs)
        expected = [config for book in books for config in book.expected()]
        seconds = [costs(config) for config in expected]
    if cost:
        _print_cost(books, waiting, costs, as_json)
        return
    before = [read_table(book) for book in books]
    console = err()
    bars = Bars(console, expected, seconds) if console.is_terminal else Lines(console, len(expected))
    try:
        with cluster_of(on, workers) as cluster, bars as watcher:
            runner = Runner(folder, cluster=cluster, data_dir=data_dir, watcher=watcher)
            wall = sum(seconds) / runner.workers
            console.print(f"{len(expected)} runs are missing: about {duration(wall)} with {runner.workers} at a time.")
            summary = runner.make(lambda: [run.config for run in queued(books, costs)], hours * 3600)
    except KeyboardInterrupt:
        _print_gain(before, [read_table(book) for book in books], as_json)
        console.print("Stopped. The same command resumes it.")
        raise typer.Exit(STOPPED) from None
    _print_gain(before, [read_table(book) for book in books], as_json)
    for config, error in summary.failed:
        console.print(f"failed: {title(config)}: {error}", style="red", soft_wrap=True)
    if summary.failed:
        raise typer.Exit(1)


def _print_cost(books: Sequence[Book], waiting: Sequence[QueuedRun], costs: Costs, as_json: bool) -> None:
    """Print what each table lacks, and which runs come first; a run of several tables counts for the first one."""
    seen: set[str] = set()
    lines = []
    for book in books:
        runs = [config for config in book.expected() if config.id not in seen]
        seen |= {config.id for config in runs}
        trials = [config for config in runs if config.n_valid and not book.protocol.on_validation]
        tried, whole = (math.fsum(map(costs, some)) for some in (trials, runs))
        lines.append((book.protocol.name, len(trials), tried, len(runs) - len(trials), whole))
    if as_json:
        print_json([
            {"table": name, "trials": n, "trial_hours": tried / 3600, "runs": runs, "hours": whole / 3600}
            for name, n, tried, runs, whole in lines
        ])  # fmt: skip
        return
    console = out()
    rows = [(name, str(n), duration(tried), str(runs), duration(whole)) for name, n, tried, runs, whole in lines]
    console.print(grid(("table", "trials", "their time", "final runs", "time in all"), rows))
    if len(lines) > 1:
        console.print(f"{duration(math.fsum(line[-1] for line in lines))} of one core in all.")
    if waiting:
        console.print("First:")
    for run in waiting[:SHOWN]:
        console.print(f"  {run.table}: {title(run.config)}, {duration(costs(run.config))}", soft_wrap=True)


def _print_gain(before: Sequence[Table], after: Sequence[Table], as_json: bool) -> None:
    """Print which cells have figures, or more runs behind them, than before."""
    gained: list[dict[str, Any]] = [
        {
            "table": new.protocol.name,
            "row": cell.row.key,
            "column": cell.column.key,
            "error": cell.ours.error.mean,
            "n": cell.ours.error.n,
        }
        for old, new in zip(before, after, strict=True)
        for was, cell in zip(old.cells, new.cells, strict=True)
        if cell.ours is not None and not cell.older and cell.runs != was.runs
    ]
    if as_json:
        print_json(gained)
        return
    console = out()
    for old, new in zip(before, after, strict=True):
        had, has = _filled(old), _filled(new)
        console.print(f"{new.protocol.name}: {has} of {len(new.cells)} cells are filled, {has - had} more than before.")
    for each in gained:
        console.print("  {table}, {row}, {column}: {error:.2f} % (n = {n})".format(**each))


def _filled(table: Table) -> int:
    """The cells with runs that the table asks for."""
    return sum(cell.ours is not None and not cell.older for cell in table.cells)
