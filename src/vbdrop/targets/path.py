"""The path from the whole model to the target, and the stages of a run."""

import math
from dataclasses import dataclass
from typing import Literal

from vbdrop.targets.target import Target

Stage = Literal["train", "press", "refine"]


@dataclass(frozen=True)
class Path:
    """Sizes over a run: the whole model, then a geometric descent, then the target.

    Attributes:
        train: The share of the run before the descent.
        refine: The share of the run after it.
        before: The size of the whole model.
        limit: The size at the end of the descent.

    Example:
        >>> path = Path(0.2, 0.3, before=100.0, limit=1.0)
        >>> [round(path(share)) for share in (0.1, 0.45, 0.7, 1.0)]
        [100, 10, 1, 1]
    """

    train: float
    refine: float
    before: float
    limit: float

    @classmethod
    def of(cls, target: Target, before: float, limit: float) -> "Path":
        """The path of a target."""
        return cls(target.train, target.refine, before, limit)

    def stage(self, share: float) -> Stage:
        """The stage after this share of the run."""
        if share < self.train:
            return "train"
        return "press" if share < 1 - self.refine else "refine"

    def pressed(self, share: float) -> float:
        """The share of the press stage that is over, from 0 to 1."""
        length = 1 - self.train - self.refine
        return 1.0 if length <= 0 else max(0.0, min(1.0, (share - self.train) / length))

    def __call__(self, share: float) -> float:
        """The size after this share of the run."""
        return self.before * math.exp(math.log(self.limit / self.before) * self.pressed(share))
