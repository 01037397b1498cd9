"""The small network of a run, for the verbs that make, write and measure it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import typer

from vbdrop.compression import Compressed, compress
from vbdrop.experiments import Record, trained_model
from vbdrop.experiments.details import details
from vbdrop.experiments.inputs import examples
from vbdrop.experiments.measuring import write_measured
from vbdrop.experiments.records import DETAILS
from vbdrop.exporting import export, measure
from vbdrop.exporting.exporting import Exported
from vbdrop.exporting.runtimes import RUNTIMES
from vbdrop.objective import noisy_tensors
from vbdrop.targets import ShrinkResult, Target, shrink
from vbdrop.train import evaluate
from vbdrop.train.files import write_json

HELD_OUT = 10
"""One in this many training examples is held out while a network is made smaller."""

SAMPLES = 64
"""The number of real inputs on which latency is measured."""


class Small(NamedTuple):
    """The small network of a run, and its error in percent."""

    network: Compressed
    error: float


def smaller(record: Record, threshold: float | None = None, data_dir: Path | None = None) -> Small:
    """Remove what the network of a run does not need.

    Args:
        record: A run with its weights.
        threshold: The ``log_alpha`` at or above which a weight is dead; None for the threshold of the training.
        data_dir: The folder of the data.

    Raises:
        typer.BadParameter: A threshold is given for a network without learned rates.
    """
    config = record.config
    test = examples(config, data_dir).test
    model = trained_model(record)
    if threshold is not None and next(noisy_tensors(model), None) is None:
        raise typer.BadParameter(f"--threshold is for networks with learned rates; {config.method} has none.")
    model = config.build_method().finish(model) if threshold is None else model
    # keep the BatchNorm statistics with which the run was evaluated
    network = compress(model, test.inputs[:SAMPLES], threshold, recalibrate=False)
    return Small(network, evaluate(network.model, test).error)


def shrunk(record: Record, target: Target, epochs: int, data_dir: Path | None = None) -> tuple[Small, ShrinkResult]:
    """Shrink the network of a run to a target, by further training.

    Every tenth training example is held out for the errors on the way, and for ``within``; the error of the result is
    that on the run's own test data.

    Args:
        record: A run with its weights.
        target: The target.
        epochs: The epochs of the further training.
        data_dir: The folder of the data.
    """
    config = record.config
    data = examples(config, data_dir)
    held_out = torch.arange(len(data.train.targets)) % HELD_OUT == 0
    train, valid = ((data.train.inputs[rows], data.train.targets[rows]) for rows in (~held_out, held_out))
    network = config.build_method().finish(trained_model(record))
    result = shrink(network, train, valid=valid, target=replace(target, train=0.0), epochs=epochs)
    return Small(result.small, evaluate(result.model, data.test).error), result


class Exports(NamedTuple):
    """The files written for other runtimes, and what could not be written or run, with the reason."""

    written: list[Exported]
    missing: dict[str, str]


def exported(small: Small, paths: Sequence[Path], *, skip_missing: bool = False) -> Exports:
    """Export a small network.

    Args:
        small: The network.
        paths: The files; the ending chooses the format.
        skip_missing: If a package for a format is not installed, note it and continue.

    Raises:
        ImportError: A package is not installed.
        ValueError: The ending of a file does not belong to a format.
        ExportError: The network cannot be written in this format.
    """
    written, missing = [], {}
    for path in paths:
        try:
            file = export(small.network, path)
        except ImportError as error:
            if not skip_missing:
                raise
            missing[f"small, {RUNTIMES[path.suffix][0]}"] = str(error)
            continue
        written.append(file)
        if not file.verified:
            missing[f"small, {RUNTIMES[path.suffix][0]}"] = file.note
    return Exports(written, missing)


def measured(
    record: Record, small: Small, exports: Exports, original: Record | None = None, data_dir: Path | None = None
) -> dict[str, Any]:
    """Measure the small network of a run against the original, and keep it with the run, for its report.

    Args:
        record: The run.
        small: Its small network.
        exports: Its exported files.
        original: The run whose network is the original; by default the same one, before anything is removed.
        data_dir: The folder of the data.

    Returns:
        The contents of ``measured.json``.
    """
    inputs = examples(record.config, data_dir).test.inputs[:SAMPLES]
    before = (original or record).config.build_method().finish(trained_model(original or record))
    runnable = [file for file in exports.written if file.verified]
    found = measure(before, small.network, runnable, inputs)
    look_into(record, data_dir)
    return write_measured(record, small.network, small.error, found, exports.missing)


def look_into(record: Record, data_dir: Path | None = None) -> None:
    """Write the details of a run from its weights if they do not exist yet."""
    if (record.folder / DETAILS).exists():
        return
    config = record.config
    network = config.build_method().finish(trained_model(record))
    content = details(config, trained_model(record), network, examples(config, data_dir).test)
    write_json(record.folder / DETAILS, content)
