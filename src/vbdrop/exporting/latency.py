"""Interleaved timing: every case runs in every round, so that a busy moment of the machine affects all equally."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

Case = Callable[[int], object]
"""A function to time; it gets the number of the call, over all rounds, so that it can cycle through several inputs."""


def interleaved(cases: Mapping[str, Case], rounds: int, round_seconds: float = 5e-4) -> dict[str, list[float]]:
    """Seconds per call for each case, one figure per round.

    Args:
        cases: Name -> function to time.
        rounds: The number of rounds, after one warm-up round.
        round_seconds: The least time for one figure; quick calls are repeated. It is shorter than the system's time
            slices, so that other programs disturb only a few figures, and not the median.

    Returns:
        Name -> seconds per call, one entry per round.

    Example:
        >>> seconds = interleaved({"quick": lambda i: None, "slow": lambda i: sum(range(1000))}, rounds=3)
        >>> max(seconds["quick"]) < min(seconds["slow"])
        True
    """
    repeats = {name: _repeats(case, round_seconds) for name, case in cases.items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for round_index in range(rounds + 1):
        for name, case in cases.items():
            elapsed = _elapsed(case, repeats[name], round_index * repeats[name]) / repeats[name]
            if round_index > 0:
                seconds[name].append(elapsed)
    return seconds


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch to one thread.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _elapsed(case: Case, repeats: int, first: int = 0) -> float:
    calls = range(first, first + repeats)
    start = time.perf_counter()
    for call in calls:
        case(call)
    return time.perf_counter() - start


def _repeats(case: Case, at_least: float) -> int:
    """How many calls in a row take this long."""
    repeats = 1
    while _elapsed(case, repeats) < at_least:
        repeats *= 2
    return repeats
