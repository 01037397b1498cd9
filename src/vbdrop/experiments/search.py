"""Which trials a choice needs: the next ones follow from the results so far, by one rule for all methods.

There are two rules, depending on what a table is about. Both end with the means over all seeds of a trial.

- `halving`, for errors: every setting is tried with one seed, the better half of them with all seeds, except
  those that are clearly worse than the best one (:func:`vbdrop.experiments.selection.hopeful`). If the same network
  has been tuned on other data, the better half of the settings there are the only ones tried.
- `along_a_scale`, for sizes: the settings are values of one knob, from the weakest to the strongest pressure, and what
  is wanted is the strongest that is still good enough. Bisection with one seed finds it; then it and its stronger
  neighbour are tried with all seeds, and the pair moves until the means of the one are good enough, and those of the
  other are not.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from vbdrop.experiments.protocol import TRIAL_SEEDS
from vbdrop.train import Method

SEEDS = len(TRIAL_SEEDS)


@dataclass(frozen=True)
class NeededTrials:
    """The trials that a choice needs, as far as they are known.

    Attributes:
        seeds: Setting -> the number of its seeds; a setting that need not be tried is missing.
        decided: Whether all of them have ended, so that no more are needed.
        more: How many runs are expected besides these before it is decided.
    """

    seeds: Mapping[int, int]
    decided: bool
    more: int = 0

    @property
    def finalists(self) -> list[int]:
        """The settings with all seeds, between which the means decide."""
        return sorted(index for index, seeds in self.seeds.items() if seeds == SEEDS)


def survivors(count: int) -> int:
    """Return how many of this many settings are tried with all seeds.

    Example:
        >>> [survivors(count) for count in (8, 6, 4, 3)]
        [4, 3, 2, 2]
    """
    return max(2, math.ceil(count / 2))


def halving(
    tried: Sequence[int], ended: Callable[[int, int], bool], order: Callable[[Sequence[int]], Sequence[int]]
) -> NeededTrials:
    """Return the trials that successive halving needs.

    Args:
        tried: The settings.
        ended: Maps a setting and a number n of seeds to whether its runs with the first n seeds have ended.
        order: Orders settings that have ended with one seed, the best one first, without the hopeless ones.

    Example:
        >>> halving(range(4), lambda index, seeds: seeds == 1, lambda tried: sorted(tried, reverse=True)).seeds
        {0: 1, 1: 1, 2: 2, 3: 2}
    """
    first = dict.fromkeys(tried, 1)
    if not all(ended(index, 1) for index in first):
        return NeededTrials(first, decided=False, more=survivors(len(tried)) * (SEEDS - 1))
    kept = order(tried)[: survivors(len(tried))]
    asked = {index: SEEDS if index in kept else 1 for index in first}
    return NeededTrials(asked, decided=all(ended(index, seeds) for index, seeds in asked.items()))


def unscreened(count: int) -> NeededTrials:
    """Return what `halving` will need once trials on other data have found the better half of this many settings.

    Example:
        >>> unscreened(8).more  # four settings, two of them with a second seed
        6
    """
    tried = survivors(count)
    return NeededTrials({}, decided=False, more=tried + survivors(tried) * (SEEDS - 1))


def along_a_scale(count: int, good: Callable[[int, int], bool | None]) -> NeededTrials:
    """Return the trials that bisection needs.

    Args:
        count: The number of settings, in the order of their pressure, the weakest one first.
        good: Maps a setting and a number n of seeds to whether the mean over its first n seeds is good enough; None if
            these have not ended.

    Example:
        >>> asked = along_a_scale(6, lambda index, seeds: index < 4)
        >>> asked.seeds, asked.finalists
        ({2: 1, 4: 2, 3: 2}, [3, 4])
    """
    asked: dict[int, int] = {}
    whole = math.ceil(math.log2(count + 1)) + 2 * (SEEDS - 1)

    def waiting() -> NeededTrials:
        return NeededTrials(asked, decided=False, more=max(0, whole - sum(asked.values())))

    low, high = -1, count  # good enough, and not
    while high - low > 1:
        middle = (low + high) // 2
        asked[middle] = 1
        found = good(middle, 1)
        if found is None:
            return waiting()
        low, high = (middle, high) if found else (low, middle)
    at = max(min(low, count - 2), 0)
    while True:
        pair = range(at, min(at + 2, count))
        asked |= dict.fromkeys(pair, SEEDS)
        verdicts = [good(index, SEEDS) for index in pair]
        if None in verdicts:
            return waiting()
        if verdicts[-1] and at + 2 < count:
            at += 1
        elif not any(verdicts) and at > 0:
            at -= 1
        else:
            return NeededTrials(asked, decided=True)


def is_scale(methods: Sequence[Method]) -> bool:
    """Return whether settings differ in one number alone, which rises from each to the next.

    Example:
        >>> from vbdrop.methods import NetworkSurgery
        >>> is_scale([NetworkSurgery(c_rate=2.0), NetworkSurgery(c_rate=3.0)])
        True
        >>> is_scale([NetworkSurgery(c_rate=2.0), NetworkSurgery(c_rate=3.0, stop=0.8)])
        False
    """
    varied = [each.name for each in fields(methods[0]) if len({repr(getattr(m, each.name)) for m in methods}) > 1]
    if len(varied) != 1:
        return False
    values = [getattr(method, varied[0]) for method in methods]
    return all(isinstance(value, int | float) for value in values) and values == sorted(set(values))
