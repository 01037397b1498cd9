"""The schedule of the KL's weight at the start of training."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Warmup:
    """How the weight of the KL rises from 0 to 1, in epochs: first held at 0, then a ramp.

    Attributes:
        hold: Epochs at 0.
        ramp: Epochs from 0 to 1 after that.
        shape: ``"linear"``, or ``"cosine"`` for a smooth start and end.

    Example:
        >>> Warmup(hold=5, ramp=10)(10)
        0.5
    """

    hold: float = 0.0
    ramp: float = 0.0
    shape: Literal["linear", "cosine"] = "linear"

    def __post_init__(self) -> None:
        for name in ("hold", "ramp"):
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise ValueError(f"`{name}` of Warmup must be a number of epochs, at least 0; got {value!r}.")
        if self.shape not in ("linear", "cosine"):
            raise ValueError(f"`shape` of Warmup must be 'linear' or 'cosine'; got {self.shape!r}.")

    def __call__(self, epoch: float) -> float:
        """The weight in this epoch, between 0 and 1; fractions of an epoch count."""
        if epoch < self.hold:
            return 0.0
        if epoch >= self.hold + self.ramp:
            return 1.0
        share = (epoch - self.hold) / self.ramp
        return share if self.shape == "linear" else 0.5 - 0.5 * math.cos(math.pi * share)
