"""The feedback controller: it sets the logarithm of the KL weight from the distance to the path."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gains:
    """How the controller reacts.

    The error is a log ratio: how much more evidence than desired removing the next element would lose.

    Attributes:
        scale: The error at which the controller moves at its full rate.
        integral: The full rate: the change of the logarithm over a whole press stage.
        proportional: The change of the logarithm for a change of the error by ``scale``.
        down: How far the logarithm may fall below its start.
        up: How far it may rise above its start.
    """

    scale: float = 3.0
    integral: float = 20.0
    proportional: float = 1.0
    down: float = 1.0
    up: float = 12.0


class Controller:
    """Proportional-integral control of log(KL weight), in its velocity form.

    There is no integral that could wind up: the state is the output itself, which is clamped, and an error counts at
    most as much as ``scale``.

    Args:
        start: The initial KL weight.
        gains: How it reacts.

    Example:
        >>> controller = Controller(start=0.01)
        >>> controller.update(error=3.0, elapsed=0.01) > 0.01
        True
    """

    def __init__(self, start: float, gains: Gains | None = None) -> None:
        if not (math.isfinite(start) and start > 0):
            raise ValueError(f"`start` of a Controller must be a KL weight above 0; got {start!r}.")
        self.gains = gains or Gains()
        self.start = start
        self.log_weight = math.log(start)
        self.last: float | None = None

    @property
    def weight(self) -> float:
        """The KL weight."""
        return math.exp(self.log_weight)

    def update(self, error: float, elapsed: float) -> float:
        """React to an error.

        Args:
            error: Positive if there is too little pressure.
            elapsed: The share of the press stage since the last update.

        Returns:
            The new KL weight.
        """
        gains = self.gains
        bounded = max(-1.0, min(1.0, error / gains.scale))
        change = gains.integral * bounded * elapsed
        if self.last is not None:
            change += gains.proportional * (bounded - self.last)
        self.last = bounded
        middle = math.log(self.start)
        self.log_weight = max(middle - gains.down, min(middle + gains.up, self.log_weight + change))
        return self.weight

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to resume."""
        return {"start": self.start, "log_weight": self.log_weight, "last": self.last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict`."""
        self.start, self.log_weight, self.last = state["start"], state["log_weight"], state["last"]
