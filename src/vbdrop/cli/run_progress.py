"""How several runs look while they run: bars in a terminal, one line per run elsewhere."""

import dataclasses
import math
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import TaskID
from rich.text import Text

from vbdrop.cli.run_display import bars
from vbdrop.experiments import Config
from vbdrop.methods import METHODS

SIZES = ("units", "scale", "width")
"""The arguments that say how large a network is."""


def title(config: Config) -> str:
    """Name a run in a few words: method, setting, network and purpose.

    Example:
        >>> from vbdrop.experiments import make_method, resolve
        >>> from vbdrop.train import Budget
        >>> method = make_method("vbd-weights", {"kl_weight": 2.0})
        >>> title(resolve(method, model="mlp", model_args={"units": 100}, data="mnist", checksum="", budget=Budget()))
        'vbd-weights kl_weight=2.0 on mlp(100), seed 0'
    """
    method = METHODS[config.method]
    defaults = {field.name: field.default for field in dataclasses.fields(method)}
    said = [name for name in config.hyper if name in method.knobs or config.hyper[name] != defaults[name]]
    knobs = "".join(f" {name}={config.hyper[name]}" for name in said)
    purpose = ["validation"] if config.n_valid else []
    purpose += [f"seed {config.budget.seed}"] if config.budget.seed or not config.n_valid else []
    return f"{config.method}{knobs} on {network(config)}, {', '.join(purpose)}"


def network(config: Config) -> str:
    """Name a network with its size, if it comes in several.

    Example:
        >>> from vbdrop.experiments import make_method, resolve
        >>> from vbdrop.train import Budget
        >>> network(resolve(make_method("plain", {}), model="lenet-5", data="mnist", checksum="", budget=Budget()))
        'lenet-5'
    """
    size = next((f"({config.model_args[name]:g})" for name in SIZES if name in config.model_args), "")
    return config.model + size


class Lines:
    """Prints a line when a run ends.

    Args:
        console: The console.
        count: The number of runs.
    """

    def __init__(self, console: Console, count: int) -> None:
        self.console = console
        self.count = count
        self.done = 0
        self.said: dict[str, str] = {}

    def started(self, config: Config) -> None:
        """Do nothing: a run gets its line when it ends."""

    def progressed(self, config: Config, done: int, steps: int, said: str) -> None:
        """Remember the latest figures."""
        self.said[config.id] = said

    def ended(self, config: Config, error: str | None) -> None:
        """Print the run's result, or why it failed; nothing if another process is working on it."""
        if error == "":
            return
        self.done += 1
        said = self.said.pop(config.id, "")
        result = (said, "bold") if error is None else (f"failed: {error}", "red")
        line = Text.assemble((f"{self.done}/{self.count}  ", "dim"), f"{title(config)}  ", result)
        self.console.print(line, soft_wrap=True)

    def __enter__(self) -> "Lines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: there is nothing to restore."""


class Bars(Lines):
    """Shows one bar per run, and one for all of them, weighted by the expected cost of each.

    Args:
        console: A terminal.
        runs: The expected runs; those that depend on a choice on validation data may get other settings.
        seconds: The expected time of each.
    """

    def __init__(self, console: Console, runs: Sequence[Config], seconds: Sequence[float]) -> None:
        super().__init__(console, len(runs))
        self.costs = dict(zip(map(_kind, runs), seconds, strict=True))
        self.progress = bars(console)
        self.all = self.progress.add_task("all runs", total=math.fsum(seconds), said="")
        self.tasks: dict[str, TaskID] = {}
        self.counted: dict[str, float] = {}

    def started(self, config: Config) -> None:
        """Add a bar."""
        self.tasks[config.id] = self.progress.add_task(title(config), total=None, said="")

    def progressed(self, config: Config, done: int, steps: int, said: str) -> None:
        """Move the run's bar, and that of all runs."""
        super().progressed(config, done, steps, said)
        self.progress.update(self.tasks[config.id], completed=done, total=steps, said=said)
        self._count(config, done / steps)

    def ended(self, config: Config, error: str | None) -> None:
        """Remove the bar."""
        self.progress.remove_task(self.tasks.pop(config.id))
        if error != "":
            self._count(config, 1.0)
        super().ended(config, error)

    def _count(self, config: Config, share: float) -> None:
        now = share * self.costs.get(_kind(config), 0.0)
        self.progress.advance(self.all, now - self.counted.get(config.id, 0.0))
        self.counted[config.id] = now

    def __enter__(self) -> "Bars":
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()


def _kind(config: Config) -> tuple[str, str, str]:
    """Return what the cost of a run depends on, ignoring its other settings."""
    return config.method, network(config), config.evaluated_on
