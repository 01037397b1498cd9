"""Chooses hyper-parameters on the validation split, with the same number of trials for every method.

A trial is a run on the training data without the split (55,000 of MNIST's 60,000), evaluated on the split (5,000) after
its last epoch. The test data are not used. Which settings are tried, and with how many seeds, follows from one rule for
all methods of a table, :mod:`vbdrop.experiments.search`; the means over both seeds of the finalists decide.

What is better:

- for a table of errors: the lower validation error;
- for a table of compression: the **smaller** network among those whose validation error is at most ``margin`` points
  above that of the plain network trained in the same way; if no setting is that good, the lower error. Size is the
  number of non-zero weights for weights, and of weights between live units for neurons;
- for a row that is to match another one in size: the network closest to the one that the other row has chosen.

Settings no further apart than `TIE` are equally good, and the simplest of them wins: the one that changes the fewest of
the method's defaults (or, for rows that share a grid, of its first values), then the one that comes first in its grid.
A setting whose loss became infinite is never chosen.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from vbdrop.experiments.config import make_method
from vbdrop.experiments.protocol import Kind, Row
from vbdrop.methods import method_named
from vbdrop.train import Method

SIZES: Mapping[Kind, str] = {"weights": "nonzero", "neurons": "compact_weights"}
"""Kind of table -> the figure that measures the size of a network."""

TIE = 0.25
"""Two errors are equal if they differ by less than this share of the standard error from counting: for 5,000 digits, an
error of 2 % and two seeds, 0.035 points or less than two digits."""

TIE_SIZE = 1.02
"""Two networks have the same size if one has at most this many times the weights of the other."""

CLEARLY = 2.0
"""An error is clearly higher than another if it is so by more than this many standard errors of their difference: for
5,000 digits and an error of 2 %, 0.56 points."""

ROUNDING = 1e-9
"""An error may be this much above a limit: sums of percentages are not exact."""


def settings(row: Row, trials: int) -> list[Method]:
    """Return the settings to try for a row's method, at most ``trials`` of them.

    They are the grid of the row's knobs; from a larger grid, settings at even steps through it, including its ends.

    Example:
        >>> row = Row("bernoulli", "Dropout", "bernoulli-dropout", knobs={"rate": (0.2, 0.3, 0.5)})
        >>> [method.rate for method in settings(row, trials=2)]
        [0.2, 0.5]
    """
    knobs = knobs_of(row)
    grid = [dict(zip(knobs, values, strict=True)) for values in itertools.product(*knobs.values())]
    if len(grid) > trials:
        last = len(grid) - 1
        grid = [grid[round(last * i / (trials - 1)) if trials > 1 else last // 2] for i in range(trials)]
    return [make_method(row.method, {**row.fixed, **setting}) for setting in grid]


def knobs_of(row: Row) -> dict[str, tuple[Any, ...]]:
    """Return the hyper-parameters that are chosen for a row, each with the values that are tried.

    Example:
        >>> knobs_of(Row("vbd", "VBD", "vbd-rates", {"rate": 0.1}))
        {'per': ('weight', 'unit'), 'kl_weight': (0.1, 1.0)}
    """
    knobs = method_named(row.method).knobs if row.knobs is None else row.knobs
    return {name: values for name, values in knobs.items() if name not in row.fixed}


def simplicity(method: Method, row: Row | None = None) -> int:
    """Return how many of a method's hyper-parameters differ from its defaults: fewer is simpler.

    Args:
        method: The method.
        row: A row whose own grid, if it has one, replaces the defaults by its first values, so that rows with one grid
            prefer the same settings.

    Example:
        >>> simplicity(make_method("bernoulli-dropout", {"rate": 0.3}))
        1
    """
    first = {} if row is None or row.knobs is None else {name: values[0] for name, values in row.knobs.items()}
    return sum(getattr(method, each.name) != first.get(each.name, each.default) for each in fields(method))


def mean_result(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the means over the seeds of one setting; a setting diverged if one of its seeds did.

    Example:
        >>> runs = [{"outcome": "finished", "error": 1.5, "examples": 100}, {"outcome": "finished", "error": 2.5,
        ...     "examples": 100}]
        >>> mean_result(runs)
        {'outcome': 'finished', 'error': 2.0, 'examples': 200.0}
    """
    outcome = "finished" if all(result["outcome"] == "finished" for result in results) else "diverged"
    if outcome == "diverged":
        return {"outcome": outcome}
    names = [name for name in ("error", "nll", *SIZES.values()) if name in results[0]]
    means = {name: math.fsum(result[name] for result in results) / len(results) for name in names}
    return {"outcome": outcome, **means, "examples": math.fsum(result["examples"] for result in results)}


def ranked(
    results: Sequence[Mapping[str, Any]],
    *,
    kind: Kind,
    margin: float | None,
    reference: float | None,
    simplest: Sequence[int] = (),
) -> list[int]:
    """Return the indices of the settings that did not diverge, the best one first.

    Args:
        results: The results of the settings, as means over their seeds: see :func:`mean_result`.
        kind: What the table is about.
        margin: How many points above ``reference`` the error may be; None to go by the error alone.
        reference: The validation error of the plain network.
        simplest: How simple each setting is, smaller is simpler; by default all are equal.

    Example:
        >>> trials = [
        ...     {"outcome": "finished", "error": 1.8, "nll": 0.1, "nonzero": 9000, "examples": 5000},
        ...     {"outcome": "finished", "error": 2.0, "nll": 0.1, "nonzero": 4000, "examples": 5000},
        ...     {"outcome": "finished", "error": 2.4, "nll": 0.1, "nonzero": 2000, "examples": 5000},
        ... ]
        >>> ranked(trials, kind="weights", margin=0.3, reference=1.8)
        [1, 0, 2]
        >>> ranked(trials, kind="weights", margin=None, reference=None)
        [0, 1, 2]
    """
    size = SIZES.get(kind) if margin is not None else None
    if size is not None and reference is None:
        raise ValueError("`reference` must be the plain network's validation error where there is a margin; got None.")
    limit = math.inf if size is None or reference is None or margin is None else reference + margin
    left = [index for index, result in enumerate(results) if result["outcome"] == "finished"]
    order = []
    while left:
        good = [index for index in left if within(results[index], limit)]
        equal = _equally_small(results, good, size) if size and good else _equally_right(results, left)
        best = min(equal, key=lambda index: (simplest[index] if simplest else 0, index))
        order.append(best)
        left.remove(best)
    return order


def closest_in_size(results: Sequence[Mapping[str, Any]], name: str, size: float) -> list[int]:
    """Return the indices of the settings that did not diverge, the closest in size first.

    Args:
        results: The results of the settings, as means over their seeds: see :func:`mean_result`.
        name: The figure that measures the size of a network.
        size: The size that is wanted; ratios of sizes are compared.

    Example:
        >>> trials = [{"outcome": "finished", "nonzero": size} for size in (4000, 2900, 2100)]
        >>> closest_in_size(trials, "nonzero", 2500)
        [1, 2, 0]
    """

    def distance(index: int) -> float:
        return abs(math.log(max(results[index][name], 1) / max(size, 1)))

    left = [index for index, result in enumerate(results) if result["outcome"] == "finished"]
    return sorted(left, key=distance)


def within(result: Mapping[str, Any], limit: float) -> bool:
    """Return whether a setting is good enough: it has not diverged, and its error is at most this one.

    Example:
        >>> within({"outcome": "finished", "error": 1.9}, 1.9), within({"outcome": "diverged"}, 1.9)
        (True, False)
    """
    return result["outcome"] == "finished" and bool(result["error"] <= limit + ROUNDING)


def hopeful(results: Sequence[Mapping[str, Any]], order: Sequence[int]) -> list[int]:
    """Return the settings that are worth a second seed: those not clearly worse than the best one, and at least two.

    A setting is clearly worse if its error is above the lowest by more than `CLEARLY` standard errors of the difference
    of two such counts.

    Args:
        results: The results with one seed.
        order: The settings that did not diverge, the best one first.

    Example:
        >>> errors = [{"error": error, "examples": 5000} for error in (2.0, 2.3, 2.9)]
        >>> hopeful(errors, [0, 1, 2])
        [0, 1]
    """
    if not order:
        return []
    best = min((results[index] for index in order), key=lambda result: result["error"])
    limit = best["error"] + CLEARLY * math.sqrt(2) * _standard_error(best)
    return [index for place, index in enumerate(order) if place < 2 or results[index]["error"] <= limit]


def _standard_error(result: Mapping[str, Any]) -> float:
    """The standard error of an error from counting, in points."""
    share = result["error"] / 100
    return 100 * math.sqrt(share * (1 - share) / result["examples"])


def _equally_small(results: Sequence[Mapping[str, Any]], indices: list[int], size: str) -> list[int]:
    least = min(results[index][size] for index in indices)
    return [index for index in indices if results[index][size] <= TIE_SIZE * least]


def _equally_right(results: Sequence[Mapping[str, Any]], indices: list[int]) -> list[int]:
    best = min((results[index] for index in indices), key=lambda result: (result["error"], result["nll"]))
    limit = best["error"] + TIE * _standard_error(best)
    return [index for index in indices if results[index]["error"] <= limit]
