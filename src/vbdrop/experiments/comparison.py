"""Compares two records of one run field by field: the same settings must give the same bits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vbdrop.experiments.records import DETAILS, ENVIRONMENT, METRICS, RESULT, Record
from vbdrop.train.files import RecordError, read_json

NOTHING = "nothing"
"""Stands for a value that one of the records lacks."""

CLOCK = "seconds"
"""The one figure of an epoch that depends on the machine's clock."""


PLACE = frozenset(
    {
        "arithmetic",
        "threads",
        "machine.capability",
        "machine.processor",
        *(f"versions.{name}" for name in ("commit", "kernels", "numpy", "torch", "vbdrop")),
    }
)
"""What determines the last bits of a run: if all of it is the same, the bits must be, too.

Two processors of one capability may still round differently: MKL multiplies matrices in another order on those that
Intel did not make."""


@dataclass(frozen=True)
class Difference:
    """A field in which two records differ.

    Attributes:
        file: The file that holds it.
        field: Its place in the file, such as ``layers[0].nonzero`` or ``epoch 3.loss``.
        recorded: Its value in the first record.
        again: Its value in the second.
    """

    file: str
    field: str
    recorded: Any
    again: Any

    def __str__(self) -> str:
        return f"{self.file}: {self.field} was {_short(self.recorded)}; now it is {_short(self.again)}"


@dataclass(frozen=True)
class Comparison:
    """The comparison of two records of a run.

    Attributes:
        fields: File -> the number of compared fields: all that the first record holds.
        differences: The figures that differ; none if the runs are bit-identical.
        surroundings: Differences in versions, machine and threads, which may be the cause.
    """

    fields: Mapping[str, int]
    differences: tuple[Difference, ...]
    surroundings: tuple[Difference, ...] = field(default=())

    @property
    def equal(self) -> bool:
        """Whether every figure is the same, to the last bit."""
        return not self.differences

    @property
    def elsewhere(self) -> tuple[Difference, ...]:
        """The surrounding differences that may change the last bits; if there are none, the bits must be equal."""
        return tuple(each for each in self.surroundings if each.field in PLACE)


def compare(recorded: Record, again: Record) -> Comparison:
    """Compare two records of a run: result, metrics of every epoch, and details, as far as the first one has them.

    Figures that runs did not yet record when the first was made are not differences. The result holds a digest of every
    bit of the trained network. Times are ignored; the machine is reported separately.

    Args:
        recorded: The record to check.
        again: The repeated run.

    Raises:
        RecordError: A file is missing or damaged.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from vbdrop.experiments import execute, make_method, resolve
        >>> from vbdrop.experiments.inputs import facts
        >>> from vbdrop.train import Budget
        >>> run = resolve(
        ...     make_method("plain", {}), model="mlp", model_args={"units": 4}, data="digits", n_train=100,
        ...     checksum=facts("digits").checksum, budget=Budget(epochs=1),
        ... )
        >>> first, second = (execute(run, Path(tempfile.mkdtemp())) for _ in range(2))
        >>> compare(first, second).equal
        True
    """
    pairs = {name: (_fields(recorded, name), _fields(again, name)) for name in _kept(recorded)}
    return Comparison(
        fields={name: len(before) for name, (before, _) in pairs.items()},
        differences=tuple(each for name, pair in pairs.items() for each in _differences(name, *pair)),
        surroundings=tuple(_changes(ENVIRONMENT, _surroundings(recorded), _surroundings(again))),
    )


def _kept(record: Record) -> list[str]:
    return [RESULT, METRICS, *([DETAILS] if (record.folder / DETAILS).is_file() else [])]


def _fields(record: Record, name: str) -> dict[str, Any]:
    """Every value in a file, by its place."""
    if name == METRICS:
        content: Any = {
            f"epoch {line.get('epoch')}": {key: value for key, value in line.items() if key != CLOCK}
            for line in record.metrics
        }
    else:
        content = read_json(record.folder / name)
    return dict(_leaves(content))


def _surroundings(record: Record) -> dict[str, Any]:
    try:
        session = record.environment["sessions"][-1]
    except (RecordError, IndexError):
        return {}
    known = {name: session.get(name) for name in ("arithmetic", "versions", "machine", "threads")}
    return dict(_leaves(known))


def _leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 -- whatever JSON can hold
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{where}.{name}" if where else name)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{where}[{index}]")
    else:
        yield where, value


def _differences(file: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name, value in before.items():
        if name not in after or after[name] != value:
            yield Difference(file, name, value, after.get(name, NOTHING))


def _changes(file: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Differences in what either has: a fact known of only one machine may be the cause."""
    yield from _differences(file, dict.fromkeys(after, NOTHING) | dict(before), after)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
