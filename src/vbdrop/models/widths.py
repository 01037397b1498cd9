"""Check layer widths given by the user, and scale them by a factor."""

import math
from numbers import Real


def checked(name: str, width: int) -> int:
    """Return ``width``, or raise if it is not a number of units.

    Example:
        >>> checked("units", 340)
        340
    """
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ValueError(f"`{name}` must be a number of units, an int >= 1; got {width!r}.")
    return width


def scaled(width: int, name: str, factor: float) -> int:
    """Return ``width`` times the argument ``name``, rounded down as the papers' scripts do.

    Example:
        >>> scaled(32, "scale", 1.5)
        48
    """
    is_number = isinstance(factor, Real) and not isinstance(factor, bool)
    if not (is_number and math.isfinite(factor) and int(width * factor) >= 1):
        raise ValueError(
            f"`{name}` must be a number that leaves every layer at least one unit, {width} * {name} >= 1; "
            f"got {factor!r}."
        )
    return int(width * factor)
