"""`Target`: how small a model has to become, in the unit that the user cares about."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch.distributed as dist
from torch import Tensor, nn

from vbdrop.compression.compress import check_round_to
from vbdrop.compression.size_limits import parse_bytes
from vbdrop.layers.modes import Filter

if TYPE_CHECKING:
    from vbdrop.objective import ELBO
    from vbdrop.targets.pursuit import Pursuit
    from vbdrop.targets.stopwatch import Timing

Unit = Literal["weights", "parameters", "bytes", "macs", "latency"]
"""What a target counts: non-zero weights, parameters, stored bytes, multiply-adds, or seconds per call."""

Runtime = Literal["onnx", "torch", "c"]

Evaluate = Callable[[nn.Module], float]
"""Takes a plain model in eval mode and returns its error on validation data, in the unit of the tolerance."""

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]

TIMES: dict[str, Unit] = {"weights": "weights", "parameters": "parameters", "macs": "macs", "latency": "latency"}
"""Targets that say how many times smaller the model has to become."""

LIMITS: dict[str, Unit] = {
    "max_weights": "weights",
    "max_bytes": "bytes",
    "max_macs": "macs",
    "max_latency": "latency",
}
"""Targets that say the largest size."""

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


@dataclass(frozen=True)
class Target:
    """The size that a model has to reach, and the length of the run.

    Exactly one of the sizes is set. ``ELBO(model, n_train=..., target=...)`` then finds the KL weight by itself, and
    `vbdrop.shrink` does everything in one call.

    Attributes:
        weights: How many times fewer non-zero weights (matrices and kernels; not biases or normalization).
        parameters: How many times fewer parameters, all of them counted.
        macs: How many times fewer multiply-adds per example.
        latency: How many times faster, on this machine.
        max_weights: The largest number of non-zero weights.
        max_bytes: The largest stored size, such as ``"50 kB"`` or a number of bytes.
        max_macs: The largest number of multiply-adds per example.
        max_latency: The longest time per call, such as ``"2 ms"`` or a number of seconds, on this machine.
        within: As small as possible with an error at most this much above that of the start, in the unit that
            ``evaluate`` returns.
        evaluate: For ``within``: returns the error of a plain model on validation data.
        unit: For ``within``: what is to become small, ``"weights"``, ``"parameters"``, ``"bytes"`` or ``"macs"``.
        only: Selects the modules that are counted and made smaller, ``(module, fqn) -> bool``; None for all.
        runtime: For ``latency`` and ``max_latency``: what runs the model, ``"onnx"``, ``"torch"`` or ``"c"``, on one
            thread.
        batch: For the same: the number of examples per call.
        round_to: The widths of layers that lose units are multiples of this, as for `vbdrop.compress`; the size counts
            what is kept for that.
        steps: The number of optimizer steps of the whole run.
        epochs: The same in epochs, at least 2, for a loop that sets ``elbo.epoch``. Set one of the two, or neither for
            `vbdrop.shrink`.
        train: The share of the run that trains without pressure, before the first weight is removed.
        refine: The share of the run after the cut, in which the survivors continue to train.
        example_inputs: Inputs that the model accepts, to trace it with; `vbdrop.shrink` takes them from its data.

    Example:
        >>> Target(macs=5), Target(max_bytes="50 kB").limit
        (Target(macs=5), 50000.0)
    """

    weights: float | None = None
    parameters: float | None = None
    macs: float | None = None
    latency: float | None = None
    max_weights: float | None = None
    max_bytes: str | float | None = None
    max_macs: float | None = None
    max_latency: str | float | None = None
    within: float | None = None
    evaluate: Evaluate | None = None
    unit: Unit | None = None
    only: Filter | None = None
    runtime: Runtime = "onnx"
    batch: int = 1
    round_to: int = 1
    steps: int | None = None
    epochs: float | None = None
    train: float = 0.2
    refine: float = 0.3
    example_inputs: Inputs | None = None

    def __post_init__(self) -> None:
        sizes = [name for name in (*TIMES, *LIMITS, "within") if getattr(self, name) is not None]
        if len(sizes) != 1:
            known = ", ".join((*TIMES, *LIMITS, "within"))
            raise ValueError(f"a Target must have exactly one of {known}; got {' and '.join(sizes) or 'none'}.")
        object.__setattr__(self, "_size", sizes[0])
        self._check_size(sizes[0])
        self._check_options()
        self._check_length()

    def _check_size(self, name: str) -> None:
        value = getattr(self, name)
        if name in TIMES and not (_is_number(value) and value > 1):
            raise ValueError(f"`{name}` of a Target must say how many times fewer, a number above 1; got {value!r}.")
        if name == "max_bytes" and isinstance(value, str):
            object.__setattr__(self, "_limit", float(parse_bytes(value)))
        elif name == "max_latency" and isinstance(value, str):
            object.__setattr__(self, "_limit", parse_seconds(value))
        elif name in LIMITS:
            if not (_is_number(value) and value > 0):
                raise ValueError(f"`{name}` of a Target must be a number above 0; got {value!r}.")
            object.__setattr__(self, "_limit", float(value))
        elif name == "within" and not (_is_number(value) and value >= 0):
            raise ValueError(f"`within` of a Target must be a tolerance, a number of at least 0; got {value!r}.")

    def _check_options(self) -> None:
        if self.within is None and self.evaluate is not None:
            raise ValueError("`evaluate` of a Target belongs to `within`, which is not set.")
        if self.evaluate is not None and not callable(self.evaluate):
            raise TypeError(f"`evaluate` of a Target must be a function (model) -> error; got {self.evaluate!r}.")
        known = tuple(unit for unit in get_args(Unit) if unit != "latency")
        if self.within is None and self.unit is not None:
            raise ValueError(f"`unit` of a Target belongs to `within`; {self._size} has its own unit.")  # type: ignore[attr-defined]
        if self.within is not None and self.unit not in (None, *known):
            raise ValueError(f"`unit` of a Target must be one of {', '.join(map(repr, known))}; got {self.unit!r}.")
        if self.only is not None and not callable(self.only):
            raise TypeError(f"`only` of a Target must be a function (module, fqn) -> bool, or None; got {self.only!r}.")
        if self.only is not None and self.measured == "latency":
            raise ValueError("`only` of a Target cannot be combined with a time, which is that of the whole model.")
        if self.runtime not in get_args(Runtime):
            known_runtimes = ", ".join(map(repr, get_args(Runtime)))
            raise ValueError(f"`runtime` of a Target must be one of {known_runtimes}; got {self.runtime!r}.")
        if type(self.batch) is not int or self.batch < 1:
            raise ValueError(f"`batch` of a Target must be a number of examples, an int >= 1; got {self.batch!r}.")
        check_round_to(self.round_to)

    def _check_length(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("a Target must have `steps` or `epochs`, not both.")
        if self.steps is not None and (type(self.steps) is not int or self.steps < 1):
            raise ValueError(
                f"`steps` of a Target must be a number of optimizer steps, an int >= 1; got {self.steps!r}."
            )
        if self.epochs is not None and not (_is_number(self.epochs) and self.epochs > 0):
            raise ValueError(f"`epochs` of a Target must be a number above 0; got {self.epochs!r}.")
        for name in ("train", "refine"):
            share = getattr(self, name)
            if not (_is_number(share) and 0 <= share <= 1):
                raise ValueError(f"`{name}` of a Target must be a share of the run, from 0 to 1; got {share!r}.")
        if self.train + self.refine > 1:
            raise ValueError(
                f"`train` and `refine` of a Target must leave the rest of the run for the pressing; got {self.train} "
                f"and {self.refine}, together more than 1."
            )

    def check_complete(self) -> None:
        """Raise an error unless there is a length from which to count the steps, and there are example inputs."""
        if self.steps is None and self.epochs is None:
            raise ValueError("the target must have a length: give it `steps`, or `epochs` and set elbo.epoch.")
        if self.epochs is not None and self.epochs < 2:
            raise ValueError(
                "`epochs` of the target must be at least 2, since the first one shows how many steps an epoch has; "
                f"got {self.epochs:g}. Give it `steps` instead."
            )
        if self.example_inputs is None:
            raise ValueError("the target must have `example_inputs`, with which its sizes are counted.")

    @property
    def measured(self) -> Unit:
        """What the target counts."""
        name: str = self._size  # type: ignore[attr-defined]
        return (TIMES | LIMITS).get(name) or self.unit or "macs"

    @property
    def limit(self) -> float | None:
        """The largest size in its unit; None for a target that is relative to the size before, or for ``within``."""
        return getattr(self, "_limit", None)

    def limit_for(self, before: float) -> float:
        """The largest size, given the size of the whole model before.

        Example:
            >>> Target(weights=20).limit_for(1000)
            50.0
        """
        if self.limit is not None:
            return self.limit
        name: str = self._size  # type: ignore[attr-defined]
        if name not in TIMES:
            raise TypeError("a Target with `within` has no size to reach before its run.")
        return before / float(getattr(self, name))

    def start(self, elbo: "ELBO") -> "Pursuit":
        """Start the pursuit of this target; ``ELBO(target=...)`` calls it."""
        if self.within is not None:
            raise ValueError("a target with `within` needs vbdrop.shrink, which evaluates the model on the way.")
        return self.pursue(elbo)

    def pursue(self, elbo: "ELBO", timing: "Timing | None" = None) -> "Pursuit":
        """The object that steers the model; a subclass may steer it differently.

        Args:
            elbo: The objective.
            timing: For a target that is a time: the measurements so far.
        """
        if self.measured == "latency" and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise ValueError(
                f"{self} cannot be pursued in several processes, each of which would measure a different time and "
                "remove different elements; set a target in `macs` instead."
            )
        from vbdrop.targets.pursuit import Pursuit  # pursuit imports this module

        return Pursuit(self, elbo, timing=timing)

    def __repr__(self) -> str:
        changed = [field for field in fields(self) if getattr(self, field.name) is not field.default]
        return f"Target({', '.join(f'{field.name}={_short(getattr(self, field.name))}' for field in changed)})"

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Read a target from the command line.

        Args:
            text: ``name=value``, or several separated by commas.

        Raises:
            ValueError: It is not a target; the message says what one looks like.
            TypeError: It is not a string.

        Example:
            >>> Target.parse("max_latency=2 ms,runtime=c")
            Target(max_latency='2 ms', runtime='c')
        """
        if not isinstance(text, str):
            raise TypeError(f"`text` of a target must be a string such as 'macs=5'; got {text!r}.")
        arguments: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or name not in _READERS:
                raise ValueError(
                    f"a target must look like 'macs=5' or 'max_bytes=50 kB', with one of {', '.join(_READERS)}; "
                    f"got {part.strip()!r}."
                )
            if name in arguments:
                raise ValueError(f"`{name}` of a target must be given once; got {text!r}.")
            try:
                arguments[name] = _READERS[name](value)
            except ValueError as error:
                raise ValueError(f"`{name}` of a target must be a number; got {value!r}.") from error
        return cls(**arguments)


def parse_seconds(text: str) -> float:
    """A time such as ``"2 ms"`` in seconds.

    Example:
        >>> parse_seconds("250 us")
        0.00025
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*", text)
    if match is None or match[2] not in SECONDS or float(match[1]) == 0:
        raise ValueError(f"`max_latency` must be a time such as '2 ms' (in {', '.join(SECONDS)}); got {text!r}.")
    return float(match[1]) * SECONDS[match[2]]


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value


_READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys((*TIMES, "max_weights", "max_macs", "within", "train", "refine"), _number),
    **dict.fromkeys(("max_bytes", "max_latency", "unit", "runtime"), str),
    **dict.fromkeys(("batch", "round_to"), int),
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: object) -> str:
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return "..." if isinstance(value, Tensor | tuple | list | Mapping) else repr(value)
