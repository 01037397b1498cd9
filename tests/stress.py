"""How many random cases a test runs: a seeded sample in ``make test``, the full count in ``make stress``."""

import os

import pytest

VARIABLE = "VBDROP_STRESS"


def count(sample: int, full: int) -> int:
    """How many cases to run: ``full`` where the environment has ``VBDROP_STRESS=1``, and ``sample`` otherwise.

    A test that uses this has the marker ``stress``, so that ``make stress`` finds it.
    """
    value = os.environ.get(VARIABLE, "0")
    if value not in ("0", "1"):
        raise ValueError(f"the environment variable {VARIABLE} must be 0 or 1; got {value!r}.")
    return full if value == "1" else sample


def only_in_stress(test: object) -> object:
    """Mark a test that takes too long for ``make test``: it runs in ``make stress`` alone."""
    return pytest.mark.stress(pytest.mark.skipif(not count(0, 1), reason="runs in `make stress`")(test))
