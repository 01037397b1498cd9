"""What the files of a record must hold: checked when they are read, so that a damaged file is named. Needs no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class DamagedError(Exception):
    """A file of a record does not hold what it must.

    Example:
        >>> raise DamagedError("result.json is damaged: `error` must be a number; got nothing")
        Traceback (most recent call last):
        vbdrop.record_schema.DamagedError: result.json is damaged: `error` must be a number; got nothing
    """


@dataclass(frozen=True)
class Optional:
    """A value that may be null or missing."""

    of: Any


@dataclass(frozen=True)
class Named:
    """An object with any names, and the same kind of value under each."""

    of: Any


NUMBER, WHOLE, TEXT, YES_OR_NO = "a number", "a whole number", "text", "true or false"
OBJECT = "an object"

BUDGET = {
    "epochs": WHOLE, "batch": WHOLE, "lr": NUMBER, "schedule": TEXT, "seed": WHOLE, "evaluate_every": WHOLE,
    "shrink_every": Optional(WHOLE),
}  # fmt: skip
CONFIG = {
    "method": TEXT, "version": WHOLE, "hyper": OBJECT, "model": TEXT, "model_args": OBJECT, "data": TEXT,
    "normalise": TEXT, "n_valid": WHOLE, "n_train": Optional(WHOLE), "budget": BUDGET,
}  # fmt: skip
LAYER = {
    "name": TEXT, "weights": WHOLE, "nonzero": WHOLE, "inputs": WHOLE, "outputs": WHOLE,
    "inputs_alive": Optional(WHOLE), "outputs_alive": Optional(WHOLE),
}  # fmt: skip
ENDED = {"run": TEXT, "outcome": TEXT, "epochs": WHOLE, "evaluated_on": TEXT, "diverged_in_epoch": Optional(WHOLE)}
RESULT = {
    **ENDED, "examples": WHOLE, "wrong": WHOLE, "error": NUMBER, "nll": NUMBER, "ece": NUMBER, "weights": WHOLE,
    "nonzero": WHOLE, "ratio": Optional(NUMBER), "units": Optional([WHOLE]), "layers": [LAYER],
    "rates": Optional(Named({"p": NUMBER, "count": WHOLE, "dead": WHOLE})), "compact_weights": Optional(WHOLE),
    "compact_ratio": Optional(NUMBER),
}  # fmt: skip
EPOCH = {"epoch": WHOLE, "loss": NUMBER, "error": Optional(NUMBER), "nonzero": Optional(Named(WHOLE))}
SESSION = {
    "versions": Named(TEXT), "machine": {"processor": TEXT}, "threads": WHOLE, "started": Optional(TEXT),
    "seconds": Optional(NUMBER),
}  # fmt: skip
ENVIRONMENT = {"sessions": [SESSION]}
PICTURE = {"rows": WHOLE, "columns": WHOLE, "values": TEXT, "scale": Optional(NUMBER)}
POINT = {
    "threshold": NUMBER, "own": YES_OR_NO, "error": NUMBER, "weights": WHOLE, "nonzero": WHOLE, "bytes": WHOLE,
    "compact_weights": Optional(WHOLE),
}  # fmt: skip
NOISE = {
    "name": TEXT, "threshold": Optional(NUMBER), "count": WHOLE, "lowest": NUMBER, "highest": NUMBER, "below": WHOLE,
    "above": WHOLE, "counts": [WHOLE], "p": NUMBER, "p_quantiles": [NUMBER],
}  # fmt: skip
DETAILS = {
    "run": TEXT, "noise": [NOISE], "sweep": Optional([POINT]),
    "first_layer": Optional(
        {"name": TEXT, "outputs": WHOLE, "reads": Optional(PICTURE), "units": Optional([PICTURE]),
         "filters": Optional([PICTURE])}),
    "masks": [{"name": TEXT, "outputs": WHOLE, "inputs": WHOLE, **PICTURE}],
    "calibration": [{"count": WHOLE, "confidence": NUMBER, "accuracy": NUMBER}],
}  # fmt: skip
MEASURED = {
    "run": TEXT, "processor": TEXT, "threads": WHOLE, "error": NUMBER, "missing": Named(TEXT),
    "layers": [{"name": TEXT, "shape": [WHOLE], "small_shape": Optional([WHOLE])}],
    "rows": [{"name": TEXT, "bytes": WHOLE, "microseconds": Named(NUMBER)}],
}  # fmt: skip


def check(value: object, spec: Any, file: object, where: str = "") -> None:  # noqa: ANN401 -- a spec nests
    """Check a value of a record.

    Args:
        value: What the file holds.
        spec: What it must hold: the name of a kind, an object with names, a list of one spec, or one of the above.
        file: The file, for the message.
        where: Where in the file the value is.

    Raises:
        DamagedError: It is something else.

    Example:
        >>> check({"epoch": "two"}, {"epoch": WHOLE}, "metrics.jsonl")
        Traceback (most recent call last):
        vbdrop.record_schema.DamagedError: metrics.jsonl is damaged: `epoch` must be a whole number; got 'two'
    """
    if isinstance(spec, Optional):
        if value is not None:
            check(value, spec.of, file, where)
    elif isinstance(spec, str):
        if not _is(value, spec):
            raise _damaged(value, spec, file, where)
    elif isinstance(spec, list):
        if not isinstance(value, list):
            raise _damaged(value, "a list", file, where)
        for index, each in enumerate(value):
            check(each, spec[0], file, f"{where}[{index}]")
    else:
        if not isinstance(value, Mapping):
            raise _damaged(value, OBJECT, file, where)
        names = dict.fromkeys(value, spec.of) if isinstance(spec, Named) else spec
        for name, inner in names.items():
            check(value.get(name), inner, file, f"{where}.{name}" if where else name)


def check_result(value: Any, file: object) -> None:  # noqa: ANN401 -- whatever JSON can hold
    """Check what a run ended with; one that diverged has no figures.

    Args:
        value: What the file holds.
        file: The file, for the message.

    Raises:
        DamagedError: It holds something else.

    Example:
        >>> check_result({"run": "ab", "outcome": "diverged", "epochs": 3, "evaluated_on": "test"}, "result.json")
    """
    check(value, ENDED, file)
    if value["outcome"] == "finished":
        check(value, RESULT, file)


def _is(value: object, kind: str) -> bool:
    if kind == OBJECT:
        return isinstance(value, Mapping)
    if kind in (TEXT, YES_OR_NO):
        return isinstance(value, str if kind == TEXT else bool)
    number = isinstance(value, int if kind == WHOLE else int | float) and not isinstance(value, bool)
    try:
        return number and math.isfinite(value)  # type: ignore[arg-type]  # it is a number by now
    except OverflowError:  # JSON may hold an integer that no float can
        return False


def _damaged(value: object, kind: str, file: object, where: str) -> DamagedError:
    got = repr(value)
    got = "nothing" if value is None else got if len(got) <= 40 else f"{got[:40]}…"
    return DamagedError(f"{file} is damaged: {f'`{where}`' if where else 'it'} must be {kind}; got {got}")
