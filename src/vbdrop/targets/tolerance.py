"""As small as possible: the smallest size on the way down whose error is within a tolerance of the initial one."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from vbdrop.targets.cut import exact_cut
from vbdrop.targets.prunable import plain_without
from vbdrop.targets.pursuit import Pursuit
from vbdrop.targets.shrink_result import CurvePoint

PATIENCE = 2
"""The walk ends after this many consecutive epochs outside the tolerance, once it has passed a size within it.

Before that it goes on: the first noise can cost a trained network more for some epochs than the sizes that follow.
"""

TRIALS = 6
"""The number of sizes tried between the smallest one within the tolerance and the next."""


class Tolerance:
    """Watches a walk down the sizes, goes back to the smallest state within the tolerance, and cuts there.

    Args:
        within: How much the error may rise.
        error: The error of a plain model.

    Attributes:
        start: The error at the start.
        kept: The smallest state within the tolerance, or None.
        decided: Whether the walk is over.
    """

    def __init__(self, within: float, error: Callable[[nn.Module], float | None]) -> None:
        self.within, self._error = within, error
        self.start: float | None = None
        self.kept: dict[str, Any] | None = None
        self.missed: list[float] = []
        self.decided = False

    def begin(self, pursuit: Pursuit, error: float | None) -> None:
        """Record the start: its error, and the whole model, to which the walk returns if nothing smaller fits."""
        self.start = error
        self.kept = {"model": copy.deepcopy(pursuit.model.state_dict()), "size": pursuit.before}

    def fits(self, error: float | None) -> bool:
        """Whether an error is within the tolerance."""
        return error is not None and self.start is not None and error <= self.start + self.within

    def judge(self, pursuit: Pursuit, point: CurvePoint, *, last: bool) -> None:
        """Look at the model after an epoch: keep it, go on, or go back and cut."""
        if self.decided:
            return
        if self.fits(point.error):
            self.missed = []
            self.kept = {"model": copy.deepcopy(pursuit.model.state_dict()), "size": point.size}
        else:
            self.missed.append(point.size)
        found = self.kept is not None and self.kept["size"] < pursuit.before
        if last or (found and len(self.missed) >= PATIENCE):
            self._decide(pursuit)

    def _decide(self, pursuit: Pursuit) -> None:
        """Go back to the smallest state within the tolerance, and cut it as far as its error allows."""
        if self.kept is None:
            raise RuntimeError("`begin` must be called before the walk.")
        pursuit.model.load_state_dict(self.kept["model"])
        pursuit.limit = self._smallest(pursuit, float(self.kept["size"]))
        pursuit.cut_()
        self.decided, self.kept = True, None

    def _smallest(self, pursuit: Pursuit, size: float) -> float:
        """The smallest size to which the kept state can be cut, without training, within the tolerance."""
        if not self.missed:
            return size
        good, bad = size, max(self.missed[0], pursuit.least)
        for _ in range(TRIALS):
            middle = (good * bad) ** 0.5
            gone = exact_cut(pursuit.model, pursuit.costs, pursuit.exact_size, middle)
            if gone is not None and self.fits(self._error(plain_without(pursuit.model, gone))):
                good = middle
            else:
                bad = middle
        return good

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to resume."""
        return {"start": self.start, "kept": self.kept, "missed": self.missed, "decided": self.decided}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict`."""
        self.start, self.kept = state["start"], state["kept"]
        self.missed, self.decided = state["missed"], state["decided"]
