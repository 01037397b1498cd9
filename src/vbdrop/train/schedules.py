"""Learning-rate schedules of the papers, by name."""

from collections.abc import Callable
from types import MappingProxyType

Schedule = Callable[[float], float]
"""Maps the share of the run that is done, in [0, 1), to a factor on the learning rate."""


def constant(progress: float) -> float:
    """Keep the learning rate constant.

    Example:
        >>> constant(0.9)
        1.0
    """
    return 1.0


def linear(progress: float) -> float:
    """Decay to 0 from the start: sparse variational dropout on LeNet-5.

    Example:
        >>> linear(0.75)
        0.25
    """
    return 1.0 - progress


def late_linear(progress: float) -> float:
    """Keep the learning rate for half of the run, then decay to 0: sparse variational dropout on LeNet-300-100.

    Example:
        >>> late_linear(0.5), late_linear(0.75)
        (1.0, 0.5)
    """
    return min(1.0, 2.0 - 2.0 * progress)


SCHEDULES = MappingProxyType({"constant": constant, "linear": linear, "late-linear": late_linear})
"""Name -> schedule."""


def schedule(name: str) -> Schedule:
    """Return a schedule of the table.

    Raises:
        ValueError: The name is not in the table.

    Example:
        >>> schedule("linear")(0.5)
        0.5
    """
    if name not in SCHEDULES:
        raise ValueError(f"`schedule` must be one of {', '.join(SCHEDULES)}; got {name!r}.")
    return SCHEDULES[name]
