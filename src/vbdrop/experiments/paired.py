"""Paired differences between two methods over their seeds: mean, confidence interval, and a test.

Two runs with one seed start from the same weights and see the same batches, so they are a pair. The interval is that of
Student's t for the mean of the differences. It describes other seeds on the same data; the variation due to other
test images comes on top.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST = 3
"""Below this many pairs nothing is decided, and no interval is given."""

LEVEL = 0.95
"""The level of an interval; a test decides at one minus this level."""

COUNTED = 0.01
"""The least standard deviation of differences of errors, in points: one example of 10,000. Errors are counts, and a few
equal differences do not make the next one certain."""


@dataclass(frozen=True)
class Paired:
    """The difference between two methods over the seeds that both have.

    Attributes:
        mean: The mean of the first minus the second.
        low: The lower end of the interval at `LEVEL`; None below `LEAST` pairs.
        high: Its upper end.
        p: The two-sided p-value of the paired t-test; None below `LEAST` pairs.
        n: The number of pairs.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:+.2f} (n = {self.n}, too few)"
        return f"{self.mean:+.2f}, {self.low:+.2f} to {self.high:+.2f} (n = {self.n})"


def paired(first: Mapping[int, float], second: Mapping[int, float], least: float = 0.0) -> Paired | None:
    """Compare two methods over the seeds that both have.

    Args:
        first: Seed -> the figure of the first method.
        second: The same for the second.
        least: The least standard deviation of the differences: `COUNTED` for errors.

    Returns:
        The difference; None if they share no seed.

    Example:
        >>> print(paired({0: 1.5, 1: 1.6, 2: 1.4}, {0: 1.8, 1: 1.8, 2: 1.8}))
        -0.30, -0.55 to -0.05 (n = 3)
        >>> print(paired({0: 1.5}, {0: 1.8, 1: 1.9}))
        -0.30 (n = 1, too few)
    """
    gaps = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    if not gaps:
        return None
    mean, n = statistics.fmean(gaps), len(gaps)
    if n < LEAST or not all(map(math.isfinite, gaps)):
        return Paired(mean, None, None, None, n)
    error = max(least, statistics.stdev(gaps)) / math.sqrt(n)
    reach = t_quantile((1 + LEVEL) / 2, n - 1) * error
    p = t_two_sided(mean / error, n - 1) if error else float(mean == 0)
    return Paired(mean, mean - reach, mean + reach, p, n)


def t_two_sided(t: float, degrees: int) -> float:
    """Return the probability that Student's t is at least as far from 0 as ``t``.

    The finite sums for a whole number of degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    Args:
        t: The statistic.
        degrees: The degrees of freedom, at least 1.

    Example:
        >>> round(t_two_sided(4.303, 2), 3)
        0.05
    """
    angle = math.atan(abs(t) / math.sqrt(degrees))
    cosine2 = math.cos(angle) ** 2
    odd = degrees % 2
    term = total = math.cos(angle) if odd else 1.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= cosine2 * (k - 1) / k
        total += term
    if odd:
        inside = 2 / math.pi * (angle + (math.sin(angle) * total if degrees > 1 else 0.0))
    else:
        inside = math.sin(angle) * total
    return min(1.0, max(0.0, 1.0 - inside))


def t_quantile(share: float, degrees: int) -> float:
    """Return the quantile of Student's t, for a share of at least a half.

    Example:
        >>> round(t_quantile(0.975, 2), 3)
        4.303
    """
    low, high = 0.0, 1.0
    wanted = 2 * (1 - share)
    while t_two_sided(high, degrees) > wanted:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, degrees) > wanted else (low, middle)
    return high


def holm(values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several tests for their number (Holm 1979), in their order.

    Example:
        >>> [round(value, 3) for value in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, so_far = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        so_far = max(so_far, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = so_far
    return adjusted
