"""``vbdrop rerun``: make a recorded run again, and see whether it gives the same bits."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.text import Text

from vbdrop.cli.console import err, out, print_json, verb
from vbdrop.cli.options import AsJson, DataDir
from vbdrop.cli.train import make
from vbdrop.experiments import Comparison, Record, compare, record_of
from vbdrop.train import RecordError

app = verb()

AGAIN = Path("runs/again")
SHOWN = 12
"""How many differences are printed; ``--json`` has all of them."""

EXAMPLES = """\b
vbdrop rerun records/vbd-weights-lenet-300-100-mnist-f673fd417aad
vbdrop rerun RUN --records runs/other       where it goes; stopped, the same command goes on with it
"""


@app.command(epilog=EXAMPLES)
def rerun(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that has ended.", show_default=False)],
    records: Annotated[Path, typer.Option(metavar="DIR", help="Where the new run gets its own folder.")] = AGAIN,
    data_dir: DataDir = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Threads; else as many as it was made with.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a recorded run again from its config.json, and compare the two field by field.

    The exit code is 0 only if every figure is the same to the last bit: the result, with a digest of the trained
    network, the figures of every epoch, and the details. Times and the machine do not count. The same bits can be
    expected with the same versions, processor and threads; where they differ, that is said too.
    """
    recorded = Record(run)
    if not recorded.finished:
        raise typer.BadParameter(f"{run} is no run that has ended: there is no result.json in it.")
    config = recorded.config
    if record_of(config, records).folder.resolve() == run.resolve():
        raise typer.BadParameter(f"--records must be another folder than that of {run}.")
    torch.set_num_threads(threads or _threads(recorded))
    again = make(config, records, data_dir, weights=False)
    found = compare(recorded, again)
    if as_json:
        print_json({"run": config.name, "again": str(again.folder), "equal": found.equal, **asdict(found)})
    else:
        _print(found, run, again.folder)
    if not found.equal:
        raise typer.Exit(1)


def _threads(record: Record) -> int:
    try:
        return int(record.environment["sessions"][-1]["threads"])
    except (RecordError, IndexError):
        err().print("The record does not say with how many threads it was made; this is with one.", style="yellow")
        return 1


def _print(found: Comparison, run: Path, again: Path) -> None:
    console = out()
    compared = ", ".join(f"{count:,} of {name}" for name, count in found.fields.items())
    console.print(f"{run}\n{again}", style="dim", soft_wrap=True)
    if found.equal:
        console.print(Text("The same to the last bit.", style="bold green"))
    else:
        count = len(found.differences)
        console.print(Text("A field differs:" if count == 1 else f"{count:,} fields differ:", style="bold red"))
        for difference in found.differences[:SHOWN]:
            console.print(Text(f"  {difference}"), soft_wrap=True)
        if count > SHOWN:
            console.print(f"  and {count - SHOWN:,} more (--json lists them)")
    console.print(f"Compared fields: {compared}.", style="dim", soft_wrap=True)
    for difference in found.surroundings:
        console.print(Text(f"Made elsewhere: {difference}", style="yellow"), soft_wrap=True)
