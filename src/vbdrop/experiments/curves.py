"""One trained network at many thresholds: its error when cut to a given size."""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from vbdrop.experiments.records import DETAILS, Record
from vbdrop.train.files import read_json

Curve: TypeAlias = tuple[tuple[float, float], ...]
"""Pairs of compression ratio (how many times fewer weights) and error in percent, ordered by ratio."""


def threshold_curve(
    record: Record, size: Literal["nonzero", "compact_weights"] = "nonzero", *, larger: bool = False
) -> Curve:
    """Read the results of a run at its own threshold and lower ones; empty if its record does not have them.

    Args:
        record: The record of a run that has ended.
        size: What is counted: non-zero weights, or weights between live units.
        larger: Whether to add higher thresholds, which keep weights that are dead in the trained network.

    Raises:
        RecordError: The file is damaged.

    Example:
        >>> from pathlib import Path
        >>> threshold_curve(Record(Path("no/such/run")))
        ()
    """
    path = record.folder / DETAILS
    sweep = (read_json(path)["sweep"] if path.is_file() else None) or []
    highest = max((point["threshold"] for point in sweep if larger or point["own"]), default=-math.inf)
    kept = [point for point in sweep if point["threshold"] <= highest and point.get(size)]
    kept.sort(key=lambda point: (-point[size], -point["threshold"]))
    return tuple((point["weights"] / point[size], point["error"]) for point in kept)


def error_at(curve: Curve, ratio: float) -> float | None:
    """Return the error of a network at a given compression ratio.

    Args:
        curve: Its curve, interpolated linearly over the logarithm of the ratio.
        ratio: How many times fewer weights.

    Returns:
        The error; None outside the curve.

    Example:
        >>> error_at(((10.0, 1.5), (1000.0, 2.5)), 100.0)
        2.0
    """
    for (low, before), (high, after) in pairwise(curve):
        if low <= ratio <= high:
            share = 0.0 if low == high else math.log(ratio / low) / math.log(high / low)
            return before + share * (after - before)
    return None


CLOSE = 1.2
"""The largest ratio of sizes of two networks whose errors are compared: cutting one much further only hurts it."""


class AtOneSize(NamedTuple):
    """Two groups of networks cut to the same size: how many times fewer weights, and their mean errors."""

    ratio: float
    first: float
    second: float


def at_one_size(first: Sequence[Curve], second: Sequence[Curve]) -> AtOneSize | None:
    """Compare two groups of networks at the same size: the largest that all of them can be cut to.

    Args:
        first: A curve for each network of the first group, which begins at its own size.
        second: The same for the second.

    Returns:
        The comparison; None if a group is empty, or a network has no curve, cannot be cut that far, or is larger by
        more than `CLOSE`.

    Example:
        >>> at_one_size([((100.0, 1.0), (110.0, 2.0))], [((110.0, 1.5), (1000.0, 4.0))])
        AtOneSize(ratio=110.0, first=2.0, second=1.5)
    """
    if not first or not second or not all((*first, *second)):
        return None
    ratios = [curve[0][0] for curve in (*first, *second)]
    ratio = max(ratios)
    if ratio > CLOSE * min(ratios):
        return None
    errors = [[error_at(curve, ratio) for curve in group] for group in (first, second)]
    if None in (*errors[0], *errors[1]):
        return None
    return AtOneSize(ratio, *(statistics.fmean(error for error in group if error is not None) for group in errors))
