"""Ratios of interleaved times."""

import statistics
from collections.abc import Mapping


def ratio(seconds: Mapping[str, list[float]], name: str, base: str) -> float:
    """The median over the rounds of one case's time divided by another's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[base], strict=True))
