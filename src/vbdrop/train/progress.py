"""How a run looks while it runs: bars in a terminal, lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from vbdrop.train.loop import Report
from vbdrop.train.metrics import Epoch

LINES = 10
"""How many lines a run prints where there is no terminal."""

WIDE = 110
"""From so many characters on, a terminal has room for a long bar beside the figures."""


def duration(seconds: float) -> str:
    """Say a time span as a person would.

    Example:
        >>> duration(4.2), duration(75), duration(3 * 3600 + 240), duration(200_000)
        ('4 s', '1 min 15 s', '3 h 4 min', '2 d 7 h')
    """
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 600:
        return f"{total // 60} min {total % 60} s"
    if total < 3600:
        return f"{total // 60} min"
    if total < 48 * 3600:
        return f"{total // 3600} h {total % 3600 // 60} min"
    return f"{total // 86400} d {total % 86400 // 3600} h"


def figures(epoch: Epoch | None) -> str:
    """Say an epoch's error and sparsity in a few words.

    Example:
        >>> from vbdrop.train.evaluation import Evaluation
        >>> from vbdrop.train.sparsity import Sparsity
        >>> figures(Epoch(3, 0.2, 1.0, 1.0, None, Evaluation(1000, 17, 0.1, 0.0), Sparsity(1000, {"fc": 20})))
        'error 1.70 %  weights  2.0 % (50x)'
    """
    if epoch is None or epoch.evaluation is None or epoch.sparsity is None:
        return ""
    text = f"error {epoch.evaluation.error:.2f} %"
    if epoch.sparsity.kept == 0:
        text += "  no weights left"
    elif epoch.sparsity.kept < epoch.sparsity.weights:
        share = 100 * epoch.sparsity.kept / epoch.sparsity.weights
        digits = 0 if epoch.sparsity.ratio >= 10 else 1
        text += f"  weights {share:4.1f} % ({epoch.sparsity.ratio:.{digits}f}x)"
    return text


class _TimeLeft(ProgressColumn):
    """What is left, from the steps that this process did itself."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        if task.finished:
            return Text(duration(task.finished_time or 0.0), style="dim")
        left = task.time_remaining
        return Text("" if left is None else f"{duration(left)} left", style="cyan")


def bars(console: Console) -> Progress:
    """Make the bars: a run each, with its error, its sparsity and the time left.

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
    """Show a run on a console: a live bar in a terminal, and some plain lines where there is none.

    Args:
        title: What is run.
        console: Where.
        say: What is said of an epoch; empty where there is nothing new.

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
            first = done - 1  # a run that goes on has steps that this process did not do
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
