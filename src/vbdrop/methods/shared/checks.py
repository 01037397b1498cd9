"""Checks of a method's hyper-parameters, with errors that name the field, what it must be and what it got."""

import math
from collections.abc import Sequence


def _value(method: object, name: str) -> float:
    """The field's value, if it is a finite number."""
    value = getattr(method, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"`{name}` of {type(method).__name__} must be a finite number; got {value!r}.")
    return value


def check_number(method: object, *names: str) -> None:
    """Each of these fields must be a finite number.

    Example:
        >>> from types import SimpleNamespace
        >>> check_number(SimpleNamespace(threshold=-0.5), "threshold")
    """
    for name in names:
        _value(method, name)


def check_share(method: object, *names: str, zero: bool = False) -> None:
    """Each of these fields must lie between 0 and 1, both excluded; with ``zero``, 0 is allowed.

    Example:
        >>> from types import SimpleNamespace
        >>> check_share(SimpleNamespace(rate=0.5), "rate")
    """
    for name in names:
        value = _value(method, name)
        if not (0 < value < 1 or (zero and value == 0)):
            low = "be 0 or lie" if zero else "lie"
            raise ValueError(f"`{name}` of {type(method).__name__} must {low} between 0 and 1; got {value!r}.")


def check_positive(method: object, *names: str) -> None:
    """Each of these fields must be above 0.

    Example:
        >>> from types import SimpleNamespace
        >>> check_positive(SimpleNamespace(temperature=0.1), "temperature")
    """
    for name in names:
        if not _value(method, name) > 0:
            raise ValueError(f"`{name}` of {type(method).__name__} must be above 0; got {getattr(method, name)!r}.")


def check_not_negative(method: object, *names: str) -> None:
    """Each of these fields must be at least 0.

    Example:
        >>> from types import SimpleNamespace
        >>> check_not_negative(SimpleNamespace(kl_weight=0.0), "kl_weight")
    """
    for name in names:
        if not _value(method, name) >= 0:
            raise ValueError(f"`{name}` of {type(method).__name__} must be at least 0; got {getattr(method, name)!r}.")


def check_count(method: object, *names: str) -> None:
    """Each of these fields must be a whole number, at least 1.

    Example:
        >>> from types import SimpleNamespace
        >>> check_count(SimpleNamespace(rounds=3), "rounds")
    """
    for name in names:
        value = getattr(method, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` of {type(method).__name__} must be an int >= 1; got {value!r}.")


def check_flag(method: object, *names: str) -> None:
    """Each of these fields must be a bool; any other value would silently count as true or false.

    Example:
        >>> from types import SimpleNamespace
        >>> check_flag(SimpleNamespace(dense_output=False), "dense_output")
    """
    for name in names:
        value = getattr(method, name)
        if not isinstance(value, bool):
            raise TypeError(f"`{name}` of {type(method).__name__} must be True or False; got {value!r}.")


def check_choice(method: object, name: str, choices: Sequence[str]) -> None:
    """The field must be one of these words.

    Example:
        >>> from types import SimpleNamespace
        >>> check_choice(SimpleNamespace(per="unit"), "per", ("unit", "layer"))
    """
    value = getattr(method, name)
    if value not in choices:
        known = ", ".join(map(repr, choices))
        raise ValueError(f"`{name}` of {type(method).__name__} must be one of {known}; got {value!r}.")
