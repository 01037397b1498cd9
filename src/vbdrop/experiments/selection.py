"""Hyper-parameters are chosen on the validation split, within the same number of trials for every method.

A trial is a run on the training data without the split (55,000 of MNIST's 60,000), evaluated on the split (5,000) after
its last epoch. The test data are not looked at. What is chosen:

- for a table of errors: the setting with the lowest validation error (then the lowest nll);
- for a table of compression: the **smallest** network whose validation error is at most ``margin`` points above that of
  the plain network trained alike; where no setting is that good, the one with the lowest error. Small is counted in
  non-zero weights for weights, and in the weights between live units for neurons.

A setting whose loss became infinite is never chosen.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from vbdrop.experiments.config import make_method
from vbdrop.experiments.protocol import Kind, Row
from vbdrop.methods import method_named
from vbdrop.train import Method

SIZES: Mapping[Kind, str] = {"weights": "nonzero", "neurons": "compact_weights"}
"""Kind of table -> the figure that says how small a network is."""


def settings(row: Row, trials: int) -> list[Method]:
    """Return the settings of a row's method that are tried, at most ``trials`` of them.

    They are the grid of the method's knobs; of a larger grid, settings at even steps through it, its ends included.

    Example:
        >>> row = Row("bernoulli", "Dropout", "bernoulli-dropout")
        >>> [method.rate for method in settings(row, trials=2)]
        [0.2, 0.5]
    """
    knobs = {name: values for name, values in method_named(row.method).knobs.items() if name not in row.fixed}
    grid = [dict(zip(knobs, values, strict=True)) for values in itertools.product(*knobs.values())]
    if len(grid) > trials:
        last = len(grid) - 1
        grid = [grid[round(last * i / (trials - 1)) if trials > 1 else last // 2] for i in range(trials)]
    return [make_method(row.method, {**row.fixed, **setting}) for setting in grid]


def choose(
    results: Sequence[Mapping[str, Any]], *, kind: Kind, margin: float | None, reference: float | None
) -> int | None:
    """Return the index of the chosen trial; None if every one of them diverged.

    Args:
        results: What the trials ended with.
        kind: What the table is about.
        margin: How many points above ``reference`` the error may be; None to choose the lowest error.
        reference: The validation error of the plain network.

    Example:
        >>> trials = [
        ...     {"outcome": "finished", "error": 1.8, "nll": 0.1, "nonzero": 9000},
        ...     {"outcome": "finished", "error": 2.0, "nll": 0.1, "nonzero": 4000},
        ...     {"outcome": "finished", "error": 2.4, "nll": 0.1, "nonzero": 2000},
        ... ]
        >>> choose(trials, kind="weights", margin=0.3, reference=1.8)
        1
        >>> choose(trials, kind="weights", margin=None, reference=None)
        0
    """
    finished = [index for index, result in enumerate(results) if result["outcome"] == "finished"]
    if not finished:
        return None
    if margin is not None and kind in SIZES:
        if reference is None:
            raise ValueError(
                "`reference` must be the plain network's validation error where there is a margin; got None."
            )
        size = SIZES[kind]
        limit = reference + margin + 1e-9  # errors are shares of 5,000 and the margin is decimal
        good = [index for index in finished if results[index]["error"] <= limit]
        if good:
            return min(good, key=lambda index: (results[index][size], results[index]["error"], index))
        return min(finished, key=lambda index: (results[index]["error"], results[index][size], index))
    return min(finished, key=lambda index: (results[index]["error"], results[index]["nll"], index))
