"""The complete settings of a run, which alone determine its result."""

import dataclasses
import hashlib
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vbdrop.data import NORMALISATIONS, SPLITS
from vbdrop.methods import METHODS, method_named
from vbdrop.models import MODELS
from vbdrop.train import Budget, Method, RecordError
from vbdrop.train.shrinking import check_shrinks

ID_LENGTH = 12

ARITHMETICS = ("kernels", "plain")
"""What computes noise and KL: the compiled kernels, if available, which improve from version to version; or the PyTorch
formulas, which are slower and give the same figures with every version of the kernels."""

ABSENT = {"arithmetic": "kernels", "split": "image"}
"""Settings added after runs had been recorded, with the value that all earlier runs had: see :func:`option`."""


@dataclass(frozen=True)
class Config:
    """A run.

    Attributes:
        method: A key of :data:`vbdrop.methods.METHODS`.
        version: The version of that method.
        hyper: All of its hyper-parameters.
        model: A key of :data:`vbdrop.models.MODELS`.
        model_args: All arguments of that network.
        data: A key of :data:`vbdrop.data.DATASETS`.
        checksum: The checksum of the data.
        normalise: How pixels become inputs, a key of :data:`vbdrop.data.NORMALISATIONS`.
        n_valid: How many training examples are held out and evaluated on; 0 to train on all, and evaluate on the test
            data.
        n_train: Train on only this many training examples, the first ones; None for all.
        budget: Epochs, batch, learning rate, schedule and seed.
        arithmetic: One of :data:`ARITHMETICS`.
        split: What is held out, a key of :data:`vbdrop.data.SPLITS`.
    """

    method: str
    version: int
    hyper: Mapping[str, Any]
    model: str
    model_args: Mapping[str, Any]
    data: str
    checksum: str
    normalise: str = "unit"
    n_valid: int = 0
    n_train: int | None = None
    budget: Budget = field(default_factory=Budget)
    arithmetic: str = "kernels"
    split: str = "image"

    @cached_property  # a queue of hundreds of runs asks for it at every poll
    def id(self) -> str:
        """Identifies the run: the same on every machine, whatever the folders, workers and times.

        A hyper-parameter added after runs had been recorded is left out if it has the value that they had: see
        :func:`vbdrop.train.method.option`.
        """
        hyper = METHODS[self.method].identifying(self.hyper) if self.method in METHODS else self.hyper
        text = json.dumps(self.as_dict() | {"hyper": hyper}, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return f"{self.method}-{self.model}-{self.data}-{self.id}"

    @property
    def evaluated_on(self) -> str:
        """``"validation"`` or ``"test"``."""
        return "validation" if self.n_valid else "test"

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for JSON, without those of :data:`ABSENT` that have their old value."""
        value: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self) | {"budget": self.budget.as_dict()}))
        return {name: each for name, each in value.items() if name not in ABSENT or each != ABSENT[name]}

    def build_method(self) -> Method:
        """Make the method with these hyper-parameters.

        Raises:
            RecordError: Another version of it is installed.
        """
        kind = method_named(self.method)
        if kind.version != self.version:
            raise RecordError(
                f"the run {self.name} was made with version {self.version} of {self.method}; "
                f"version {kind.version} is installed, and gives other figures"
            )
        return make_method(self.method, self.hyper)


def make_method(name: str, hyper: Mapping[str, Any]) -> Method:
    """Make a method of the table with these hyper-parameters; the others have their defaults.

    Raises:
        ValueError: The method has no such hyper-parameter, or does not accept its value.

    Example:
        >>> make_method("plain", {"speed": 3})
        Traceback (most recent call last):
        ValueError: the method plain has no hyper-parameter 'speed'; it has none.
    """
    kind = method_named(name)
    known = [each.name for each in dataclasses.fields(kind)]
    for key in hyper:
        if key not in known:
            has = ", ".join(known) or "none"
            raise ValueError(f"the method {name} has no hyper-parameter {key!r}; it has {has}.")
    try:
        return kind(**{key: _frozen(value) for key, value in hyper.items()})
    except TypeError as error:
        raise ValueError(str(error)) from error


def resolve(
    method: Method,
    *,
    model: str,
    model_args: Mapping[str, Any] | None = None,
    data: str,
    checksum: str,
    normalise: str = "unit",
    n_valid: int = 0,
    n_train: int | None = None,
    budget: Budget,
    arithmetic: str = "kernels",
    split: str = "image",
) -> Config:
    """Make the complete settings of a run, filling in the defaults.

    Raises:
        ValueError: The network is not in the table, or has no such argument; or a setting is wrong for the method.

    Example:
        >>> from vbdrop.methods import METHODS
        >>> run = resolve(METHODS["plain"](), model="mlp", data="digits", checksum="ab", budget=Budget(epochs=3))
        >>> run.model_args
        {'units': 340, 'inputs': 784, 'classes': 10}
    """
    for name, value in (("n_valid", n_valid), ("n_train", 1 if n_train is None else n_train)):
        least = 0 if name == "n_valid" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"`{name}` must be a number of examples, an int >= {least}; got {value!r}.")
    if normalise not in NORMALISATIONS:
        raise ValueError(f"`normalise` must be one of {', '.join(NORMALISATIONS)}; got {normalise!r}.")
    for name, word, known in (("arithmetic", arithmetic, ARITHMETICS), ("split", split, tuple(SPLITS))):
        if word not in known:
            raise ValueError(f"`{name}` must be one of {', '.join(known)}; got {word!r}.")
    check_shrinks(method, budget.shrink_every)
    return Config(
        method=method.name,
        version=method.version,
        hyper=method.settings(),
        model=model,
        model_args=_with_defaults(model, model_args or {}),
        data=data,
        checksum=checksum,
        normalise=normalise,
        n_valid=n_valid,
        n_train=n_train,
        budget=budget,
        arithmetic=arithmetic,
        split=split if n_valid else "image",
    )


def from_dict(value: object) -> Config:
    """Make the settings from the result of :meth:`Config.as_dict`.

    A hyper-parameter that did not exist when they were written gets the value that the run had.

    Raises:
        RecordError: They are not the settings of a run.

    Example:
        >>> from_dict({"method": "plain"})
        Traceback (most recent call last):
        vbdrop.train.files.RecordError: the settings of a run must have ...
    """
    names = [each.name for each in dataclasses.fields(Config)]
    if not isinstance(value, dict) or set(value) | set(ABSENT) != set(names):
        got = ", ".join(value) if isinstance(value, dict) else repr(value)
        raise RecordError(f"the settings of a run must have {', '.join(names)}; got {got}")
    try:
        hyper = value["hyper"] | {k: v for k, v in _absent(value["method"]).items() if k not in value["hyper"]}
        return Config(**{**value, "hyper": hyper, "budget": Budget(**value["budget"])})
    except (TypeError, ValueError) as error:
        raise RecordError(f"the settings of a run are wrong: {error}") from error


def _absent(method: str) -> dict[str, Any]:
    """The hyper-parameters that the record of a run may lack; none for a method that no longer exists."""
    return METHODS[method].absent() if method in METHODS else {}


def _with_defaults(model: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if model not in MODELS:
        raise ValueError(f"`model` must be one of {', '.join(MODELS)}; got {model!r}.")
    known = inspect.signature(MODELS[model].factory).parameters
    for name, value in arguments.items():
        if name not in known:
            raise ValueError(f"the network {model} has no argument {name!r}; it has {', '.join(known)}.")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"`{name}` of {model} must be a finite number; got {value!r}.")
    defaults = {name: parameter.default for name, parameter in known.items()}
    return {name: arguments.get(name, default) for name, default in defaults.items()}


def _frozen(value: Any) -> Any:  # noqa: ANN401 -- whatever a hyper-parameter can be
    """JSON has lists where a method has tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
