"""Interleaved timing: every case runs in every round, so that a busy moment of the machine hits all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(
    cases: Mapping[str, Callable[[], object]], rounds: int = 40, repeats: int = 5
) -> dict[str, list[float]]:
    """Seconds a call for each case, a figure a round.

    Args:
        cases: Name -> what to time.
        rounds: How often all the cases are gone through, after two rounds that do not count.
        repeats: How many calls in a row make one figure.

    Returns:
        Name -> seconds a call, one entry a round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for round_index in range(rounds + 2):
        for name, call in cases.items():
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            elapsed = (time.perf_counter() - start) / repeats
            if round_index >= 2:
                seconds[name].append(elapsed)
    return seconds


def ratio(seconds: Mapping[str, list[float]], name: str, base: str) -> float:
    """The median over the rounds of one case's time divided by another's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[base], strict=True))
