"""``vbdrop rerun``: repeat a recorded run, and check that it gives the same bits, or at least plausible figures."""

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
from vbdrop.experiments.spread import FAULTS, Spread, Verdict, spreads, verdict_on
from vbdrop.train import RecordError

app = verb()

AGAIN = Path("runs/again")
SHOWN = 12
"""How many differences are printed; ``--json`` lists all of them."""

EXAMPLES = """\b
vbdrop rerun records/vbd-weights-lenet-300-100-mnist-f673fd417aad
vbdrop rerun RUN --records runs/other       into another folder; if stopped, the same command resumes it
"""


@app.command(epilog=EXAMPLES)
def rerun(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that has ended.", show_default=False)],
    records: Annotated[Path, typer.Option(metavar="DIR", help="Where the new run gets its own folder.")] = AGAIN,
    data_dir: DataDir = None,
    threads: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Threads; by default as many as in the record.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Repeat a recorded run from its config.json, and compare the two field by field.

    At the commit of the record, on the same kind of processor, every figure must be the same to the last bit: the
    result, with a digest of the trained network, the figures of every epoch, and the details. Elsewhere sums are
    rounded differently; error and size must then lie within the spread of the recorded seeds of the same setting. The
    verdict is printed, and the exit code is 0 if the requirement is met.
    """
    recorded = Record(run)
    if not recorded.finished:
        raise typer.BadParameter(f"{run} is not a finished run: it has no result.json.")
    config = recorded.config
    if record_of(config, records).folder.resolve() == run.resolve():
        raise typer.BadParameter(f"--records must not be the folder that holds {run}.")
    torch.set_num_threads(threads or _threads(recorded))
    again = make(config, records, data_dir, weights=False)
    found, likely = compare(recorded, again), spreads(recorded, again)
    verdict = verdict_on(found, likely)
    if as_json:
        facts = {"run": config.name, "again": str(again.folder), "equal": found.equal, "verdict": verdict}
        print_json({**facts, **asdict(found), "spreads": [asdict(each) for each in likely]})
    else:
        _print(found, likely, verdict, run, again.folder)
    if verdict in FAULTS:
        raise typer.Exit(1)


def _threads(record: Record) -> int:
    try:
        return int(record.environment["sessions"][-1]["threads"])
    except (RecordError, IndexError):
        err().print("The record does not say how many threads it was made with; using one.", style="yellow")
        return 1


def _print(found: Comparison, likely: tuple[Spread, ...], verdict: Verdict, run: Path, again: Path) -> None:
    console = out()
    compared = ", ".join(f"{count:,} of {name}" for name, count in found.fields.items())
    console.print(f"{run}\n{again}", style="dim", soft_wrap=True)
    if found.equal:
        console.print(Text("The same to the last bit.", style="bold green"))
    else:
        if verdict != "different":
            style = "bold red" if verdict in FAULTS else "bold green"
            console.print(Text(f"Different bits, made elsewhere; {verdict}.", style=style))
            for each in likely:
                console.print(Text(f"  {each}"))
        count = len(found.differences)
        style = "bold red" if verdict == "different" else ""
        console.print(Text("A field differs:" if count == 1 else f"{count:,} fields differ:", style=style))
        for difference in found.differences[:SHOWN]:
            console.print(Text(f"  {difference}"), soft_wrap=True)
        if count > SHOWN:
            console.print(f"  and {count - SHOWN:,} more (--json lists them)")
    console.print(f"Compared fields: {compared}.", style="dim", soft_wrap=True)
    for difference in found.surroundings:
        console.print(Text(f"Made elsewhere: {difference}", style="yellow"), soft_wrap=True)
