"""Numbers, names and commands in readable form."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vbdrop.report.reading import Run

NETWORKS = {
    "lenet-300-100": "LeNet-300-100",
    "lenet-500-300": "LeNet-500-300",
    "lenet-5": "LeNet-5",
    "mlp": "MLP",
    "kingma-cnn": "Kingma's CNN",
    "vgg": "VGG",
}
DATA = {"digits": "digits", "mnist": "MNIST", "cifar10": "CIFAR-10", "svhn": "SVHN"}

LONGEST = 22
"""The longest name in a figure."""


def thousands(number: float) -> str:
    """Write a count.

    Example:
        >>> thousands(266200)
        '266,200'
    """
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Write bytes in a suitable unit.

    Example:
        >>> size(512), size(31_546), size(1_066_920)
        ('512 B', '31.5 kB', '1.07 MB')
    """
    if number < 1_000:
        return f"{number:.0f} B"
    return f"{number / 1e3:.1f} kB" if number < 999_500 else f"{number / 1e6:.2f} MB"


def times(ratio: float | None) -> str:
    """Write a reduction factor.

    Example:
        >>> times(90.97), times(3.04), times(None)
        ('91.0×', '3.0×', 'all gone')
    """
    return "all gone" if ratio is None else f"{ratio:,.1f}×"


def microseconds(number: float) -> str:
    """Write a latency.

    Example:
        >>> microseconds(11.71), microseconds(653.8), microseconds(12_345)
        ('11.7 µs', '654 µs', '12.3 ms')
    """
    if number >= 10_000:
        return f"{number / 1e3:.1f} ms"
    return f"{number:.1f} µs" if number < 100 else f"{number:,.0f} µs"


def short(name: str) -> str:
    """Cut a name that is too long for a figure.

    Example:
        >>> short("hidden.0"), short("encoder.layers.11.attention.out")
        ('hidden.0', 'encoder.layers.11.att…')
    """
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def title(run: Run) -> str:
    """Name a run in a headline."""
    model, data = run.config["model"], run.config["data"]
    return f"{run.config['method']}, {NETWORKS.get(model, model)} on {DATA.get(data, data)}"


def labels(runs: Sequence[Run]) -> list[str]:
    """Name each of several runs, as briefly as possible, by what distinguishes it from the others."""
    facts = [_facts(run) for run in runs]
    names = list(dict.fromkeys(name for each in facts for name in each))
    varied = [name for name in names if len({each.get(name) for each in facts}) > 1]
    found = [facts[0]["method"]] if len(runs) == 1 else []
    for each in facts if len(runs) > 1 else []:
        same = [other for other in facts if other["method"] == each["method"]]
        telling = [name for name in varied if name != "method" and len({other.get(name) for other in same}) > 1]
        said = [f"{name} {each[name]}" for name in telling if name in each]
        found.append(" · ".join([each["method"], *said]))
    if len(set(found)) < len(found):  # the same run twice
        return [f"{label} ({index})" for index, label in enumerate(found, start=1)]
    return found


def _facts(run: Run) -> dict[str, str]:
    config = run.config
    settings = {**config["model_args"], **config["hyper"], **config["budget"]}
    return {
        "method": config["method"],
        "network": NETWORKS.get(config["model"], config["model"]),
        "data": DATA.get(config["data"], config["data"]),
        "held out": str(config["n_valid"]),
        "examples": str(config["n_train"]),
        **{name.replace("_", " "): _value(value) for name, value in settings.items()},
    }


def command(run: Run) -> str:
    """Return the command that repeats a run, from its ``config.json``.

    Options would not suffice: some settings have none, and a setting newer than the record may have another default.
    """
    threads = run.sessions[-1]["threads"] if run.sessions else 1
    return "vbdrop train --config config.json" + (f" --threads {threads}" if threads > 1 else "")


def remedy(run: Run, what: str) -> tuple[str, ...]:
    """Return the commands that make a missing part of a record.

    Args:
        run: The run.
        what: ``"details"`` or ``"measured"``.
    """
    folder = shlex.quote(str(run.folder))
    if run.has_weights:
        return (f"vbdrop compress {folder} --measure",)
    place = run.folder.resolve()
    records = "runs/again" if place.parent == Path("runs").resolve() else "runs"  # a folder without its result
    again = (f"vbdrop train --config {folder}/config.json --records {records}",)
    if what == "details":
        return again
    return (*again, f"vbdrop compress {shlex.quote(f'{records}/{place.name}')} --measure")


def _value(value: Any) -> str:  # noqa: ANN401 -- whatever JSON can hold
    return value if isinstance(value, str) else json.dumps(value)
