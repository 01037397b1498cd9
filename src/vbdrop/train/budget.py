"""The budget of a run: the settings that all methods of a comparison share."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vbdrop.train.schedules import schedule

MAX_SEED = 2**32 - 1


@dataclass(frozen=True)
class Budget:
    """The budget of a run, trained with Adam.

    Attributes:
        epochs: Passes over the training data.
        batch: Examples per step.
        lr: The learning rate, before the schedule.
        schedule: A key of :data:`vbdrop.train.SCHEDULES`.
        seed: The seed of the initial weights, the noise and the order of the examples.
        evaluate_every: Epochs between evaluations; the last epoch is always evaluated.
        shrink_every: Epochs between removals of units that have stayed dead, for methods that support it; None to keep
            them. See `vbdrop.train.shrinking`.

    Example:
        >>> Budget(epochs=0)
        Traceback (most recent call last):
        ValueError: `epochs` must be an int >= 1; got 0.
    """

    epochs: int = 100
    batch: int = 100
    lr: float = 1e-3
    schedule: str = "late-linear"
    seed: int = 0
    evaluate_every: int = 1
    shrink_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "evaluate_every", "shrink_every"):
            value = getattr(self, name)
            if name == "shrink_every" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be an int >= 1; got {value!r}.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed <= MAX_SEED:
            raise ValueError(f"`seed` must be an int from 0 to {MAX_SEED}; got {self.seed!r}.")
        if not (isinstance(self.lr, int | float) and 0 < self.lr < math.inf):
            raise ValueError(f"`lr` must be a learning rate, a number > 0; got {self.lr!r}.")
        schedule(self.schedule)

    def as_dict(self) -> dict[str, Any]:
        """Return the budget for JSON, without ``shrink_every`` if it is None, so that recorded runs keep their names.

        Example:
            >>> Budget(epochs=3).as_dict()
            {'epochs': 3, 'batch': 100, 'lr': 0.001, 'schedule': 'late-linear', 'seed': 0, 'evaluate_every': 1}
        """
        return {name: value for name, value in asdict(self).items() if name != "shrink_every" or value is not None}

    @property
    def noise_seed(self) -> int:
        """The seed of the noise; it differs from that of the initial weights, whose draws it would repeat.

        Example:
            >>> Budget(seed=0).noise_seed
            3626764237
        """
        return int(np.random.RandomState([self.seed, MAX_SEED]).randint(MAX_SEED, dtype=np.uint32))
