"""Whether a repeated run lies within the spread of the recorded seeds of its setting.

With another version of the code, or on another kind of processor, sums are rounded differently, and a long run ends
with different figures, as with another seed. They must then lie within the spread of the recorded seeds.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from vbdrop.experiments.comparison import Comparison
from vbdrop.experiments.config import Config
from vbdrop.experiments.records import Record, all_records
from vbdrop.train import RecordError

WIDTH = 3.0
"""How many standard deviations from the mean of the recorded seeds a run may be."""

RELATIVE = 0.05
"""The least standard deviation of a ratio, relative to it: a few seeds may agree by chance."""


@dataclass(frozen=True)
class Spread:
    """A figure of a repeated run, beside that of the recorded seeds.

    Attributes:
        figure: Its name.
        again: Its value in the repeated run.
        low: The lowest plausible value, given the recorded seeds.
        high: The highest.
        seeds: The number of recorded seeds.
    """

    figure: str
    again: float
    low: float
    high: float
    seeds: int

    @property
    def within(self) -> bool:
        """Whether the value is plausible."""
        return self.low <= self.again <= self.high

    def __str__(self) -> str:
        where = "within" if self.within else "outside"
        seeds = "one recorded seed" if self.seeds == 1 else f"{self.seeds} recorded seeds"
        return f"{self.figure} {self.again:.2f}, {where} {self.low:.2f} to {self.high:.2f} of {seeds}"


Verdict: TypeAlias = Literal["equal", "different", "within the recorded spread", "outside the recorded spread"]
"""What a repeated run shows; only the second and the last are a fault."""

FAULTS: tuple[Verdict, ...] = ("different", "outside the recorded spread")


def verdict_on(found: Comparison, likely: Sequence[Spread]) -> Verdict:
    """Judge a repeated run: its bits where nothing that determines them differs, elsewhere its figures.

    Args:
        found: The comparison of both records.
        likely: Its figures beside those of the recorded seeds.
    """
    if found.equal:
        return "equal"
    if not found.elsewhere:
        return "different"
    within = bool(likely) and all(each.within for each in likely)
    return "within the recorded spread" if within else "outside the recorded spread"


def spreads(recorded: Record, again: Record) -> tuple[Spread, ...]:
    """Compare the error of a run, and how many times fewer weights it has, with the recorded seeds of its setting.

    The standard deviation is that of the seeds, but at least that of counting errors among this many examples.

    Args:
        recorded: The record to check; those of the other seeds are beside its folder.
        again: The repeated run.

    Raises:
        RecordError: A file is missing or damaged.
    """
    results = [record.result for record in _seeds(recorded)]
    now = again.result
    if now["outcome"] != "finished" or any(result["outcome"] != "finished" for result in results):
        return ()
    share = statistics.fmean(result["error"] for result in results) / 100
    counting = 100 * math.sqrt(share * (1 - share) / now["examples"])
    found = [_spread("error", now, results, counting)]
    if now["ratio"] and all(result["ratio"] for result in results) and now["ratio"] != 1:
        found.append(_spread("ratio", now, results, RELATIVE * statistics.fmean(r["ratio"] for r in results)))
    return tuple(found)


def _spread(name: str, now: dict[str, Any], results: Sequence[dict[str, Any]], least: float) -> Spread:
    values = [result[name] for result in results]
    mean = statistics.fmean(values)
    sd = max(least, statistics.stdev(values) if len(values) > 1 else 0.0)
    return Spread(name, now[name], mean - WIDTH * sd, mean + WIDTH * sd, len(values))


def _seeds(record: Record) -> list[Record]:
    """The record, and those of other seeds of the same setting that have ended."""
    setting = _unseeded(record.config)
    found = []
    for other in all_records(record.folder.parent):
        try:
            if other.finished and _unseeded(other.config) == setting:
                found.append(other)
        except RecordError:
            continue  # a damaged record of another run is not what is checked
    return found


def _unseeded(config: Config) -> str:
    return replace(config, budget=replace(config.budget, seed=0)).id
