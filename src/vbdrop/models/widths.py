"""Checks layer widths given by the user, and scales them by a factor."""

import math


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
    if not (math.isfinite(factor) and int(width * factor) >= 1):
        raise ValueError(f"`{name}` must leave every layer at least one unit, {width} * {name} >= 1; got {factor!r}.")
    return int(width * factor)
