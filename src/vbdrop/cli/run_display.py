"""How a run looks while it runs: bars in a terminal, lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from vbdrop.train import Epoch, Report
from vbdrop.train.epoch_words import duration, figures

LINES = 10
"""How many lines a run prints outside a terminal."""

WIDE = 110
"""At this width or above, in characters, a terminal has room for a long bar beside the figures."""


class _TimeLeft(ProgressColumn):
    """Estimate the remaining time from the steps that this process did itself."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        if task.finished:
            return Text(duration(task.finished_time or 0.0), style="dim")
        left = task.time_remaining
        return Text("" if left is None else f"{duration(left)} left", style="cyan")


def bars(console: Console) -> Progress:
    """Make the progress bars: one per run, with its error, its sparsity and the time left.

    Example:
        >>> with bars(Console(file=None, quiet=True)) as progress:
        ...     task = progress.add_task("VBD", total=10, said="")
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24 if console.width >= WIDE else 8),
        TextColumn("{task.percentage:>3.0f} %", style="dim"),
        TextColumn("{task.fields[said]}"),
        _TimeLeft(),
        console=console,
        refresh_per_second=4,
        speed_estimate_period=60,
    )


@contextmanager
def reporting(title: str, console: Console, say: Callable[[Epoch | None], str] = figures) -> Iterator[Report]:
    """Show a run on a console: a live bar in a terminal, a few plain lines elsewhere.

    Args:
        title: The name of the run.
        console: The console.
        say: Describes an epoch; returns an empty string if there is nothing new.

    Example:
        >>> with reporting("VBD", Console(quiet=True)) as report:
        ...     report(5, 10, None)
    """
    if not console.is_terminal:
        console.print(title, highlight=False)
        yield _lines(console, say)
        return
    with bars(console) as progress:
        task = progress.add_task(title, total=None, said="")
        said = ""

        def report(done: int, steps: int, epoch: Epoch | None) -> None:
            nonlocal said
            said = say(epoch) or said
            progress.update(task, completed=done, total=steps, said=said)

        yield report


def _lines(console: Console, say: Callable[[Epoch | None], str]) -> Report:
    start, first, shown, said = time.monotonic(), -1, 0, ""

    def report(done: int, steps: int, epoch: Epoch | None) -> None:
        nonlocal first, shown, said
        if first < 0:
            first = done - 1  # a resumed run has steps that this process did not do
        said = say(epoch) or said
        part = done * LINES // steps
        if epoch is None or part <= shown:
            return
        shown = part
        spent = time.monotonic() - start
        left = spent / (done - first) * (steps - done)
        when = f"{duration(left)} left" if done < steps else duration(spent)
        epochs = f"{epoch.epoch}/{round(steps * epoch.epoch / done)}"
        console.print(f"  epoch {epochs:>9}  loss {epoch.loss:7.4f}  {said}  {when}", highlight=False, soft_wrap=True)

    return report
