"""As small as possible: the smallest size whose error, after some training at that size, is within a tolerance."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from vbdrop.targets.cut import exact_cut
from vbdrop.targets.prunable import plain_without
from vbdrop.targets.pursuit import CutCost, Pursuit
from vbdrop.targets.shrink_result import CurvePoint

STEP = 0.6
"""A state of the walk is kept once its size is at most this share of the one before."""

MOST_TRIALS = 5
"""The largest number of sizes tried, one epoch each; half of the refining epochs remain for the last one."""

CLOSE = 0.8
"""Trials end once the largest size that does not fit is at least this share of the smallest one that does."""

CUTS = 6
"""The number of sizes tried without training, if no size that was trained fits."""


class Tolerance:
    """Watches a walk down the sizes, then tries sizes by halving until the smallest that fits is found.

    The error of a network under pressure is above that of the same network refined, so the walk itself decides little:
    it shows the smallest size that fits even then. Between that one and the smallest of the walk, sizes are tried: the
    next larger state of the walk is cut to the size, and trained for an epoch without noise or pressure. Sizes
    are judged on a finite number of examples, and the smallest that fits would often be one that was lucky on them, so
    a trial must fit with a reserve.

    Args:
        within: How much the error may rise.
        error: The error of a plain model.
        trials: The number of epochs that can be spent on trials.

    Attributes:
        start: The error at the start.
        reserve: How far below the tolerance the error of a trial must be.
        states: The states of the walk, the largest first: each with its size.
        good: The smallest size known to fit.
        bad: The largest size below it that is not known to fit.
        best: The smallest state that was tried and fits, or None.
        left: The trials that remain.
        trying: Whether the walk is over.
        decided: Whether the size is found.
    """

    def __init__(self, within: float, error: Callable[[nn.Module], float | None], trials: int) -> None:
        self.within, self._error = within, error
        self.start: float | None = None
        self.reserve = 0.0
        self.states: list[dict[str, Any]] = []
        self.good = self.bad = 0.0
        self.best: dict[str, Any] | None = None
        self.left = min(trials, MOST_TRIALS)
        self.trying = self.decided = False

    def begin(self, pursuit: Pursuit, error: float | None, standard_error: float = 0.0) -> None:
        """Record the start: its error, and the whole model, to which the run returns if nothing smaller fits."""
        self.start, self.good = error, pursuit.before
        self.reserve = min(self.within, standard_error)
        self.states = [_state_of(pursuit, pursuit.before)]

    def fits(self, error: float | None, reserve: float = 0.0) -> bool:
        """Whether an error is within the tolerance, less a reserve."""
        return error is not None and self.start is not None and error <= self.start + self.within - reserve

    def judge(self, pursuit: Pursuit, point: CurvePoint, *, last: bool) -> None:
        """Judge the model after an epoch: walk on, try another size, or continue with the one that was found.

        Args:
            pursuit: The pursuit, whose model may be taken back to an earlier state.
            point: The epoch.
            last: Whether it was the last one of the walk.
        """
        if self.decided:
            return
        if self.trying:
            self._judge_trial(pursuit, point)
        else:
            self._walk(pursuit, point)
            if not last:
                return
            self.trying = True
        if self.left and self.bad < CLOSE * self.good:
            self.left -= 1
            self._cut_to(pursuit, (self.good * self.bad) ** 0.5)
        else:
            self._decide(pursuit)

    def _walk(self, pursuit: Pursuit, point: CurvePoint) -> None:
        """Keep a state of the walk; states larger than one that fits are no longer needed."""
        self.bad = max(pursuit.least, point.size)
        if self.fits(point.error):
            self.good = point.size
            self.states = [_state_of(pursuit, point.size)]
        elif point.size <= STEP * self.states[-1]["size"]:
            self.states.append(_state_of(pursuit, point.size))

    def _judge_trial(self, pursuit: Pursuit, point: CurvePoint) -> None:
        """Halve what is left between the size that fits and the one that does not."""
        if self.fits(point.error, self.reserve):
            self.good = point.size
            self.best = _state_of(pursuit, point.size)
        else:
            self.bad = point.size
        self.states = [state for state in self.states if state["size"] >= self.bad]

    def _cut_to(self, pursuit: Pursuit, size: float) -> None:
        """Cut the next larger state of the walk to a size."""
        pursuit.model.load_state_dict(self._state_above(size)["model"])
        pursuit.limit, pursuit.cut_cost = size, None
        pursuit.cut_()

    def _state_above(self, size: float) -> dict[str, Any]:
        return next(state for state in reversed(self.states) if state["size"] >= size)

    def _decide(self, pursuit: Pursuit) -> None:
        """Continue with the smallest size that fits."""
        if self.best is not None:
            pursuit.model.load_state_dict(self.best["model"])
            pursuit.limit, pursuit.cut_cost = self.good, CutCost(**self.best["cut_cost"])
        else:
            pursuit.model.load_state_dict(self._state_above(self.good)["model"])
            pursuit.limit, pursuit.cut_cost = self._smallest_cut(pursuit), None
            pursuit.cut_()
        self.decided, self.states, self.best = True, [], None

    def _smallest_cut(self, pursuit: Pursuit) -> float:
        """The smallest size to which the model can be cut, without training, within the tolerance."""
        good, bad = self.good, self.bad
        for _ in range(CUTS if bad < good else 0):
            middle = (good * bad) ** 0.5
            gone = exact_cut(pursuit.model, pursuit.costs, pursuit.exact_size, middle)
            fits = gone is not None and self.fits(self._error(plain_without(pursuit.model, gone)))
            good, bad = (middle, bad) if fits else (good, middle)
        return good

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to resume."""
        return {name: value for name, value in vars(self).items() if name not in ("within", "_error")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict`."""
        vars(self).update(state)


def _state_of(pursuit: Pursuit, size: float) -> dict[str, Any]:
    cost = None if pursuit.cut_cost is None else asdict(pursuit.cut_cost)
    return {"model": copy.deepcopy(pursuit.model.state_dict()), "size": size, "cut_cost": cost}
