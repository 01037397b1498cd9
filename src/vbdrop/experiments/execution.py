"""One run, from its settings to its result."""

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.analysis.graph import trace
from vbdrop.convert import rates
from vbdrop.experiments.config import Config
from vbdrop.experiments.counts import EXAMPLES, count, units
from vbdrop.experiments.details import details
from vbdrop.experiments.environment import environment, now
from vbdrop.experiments.inputs import examples
from vbdrop.experiments.kept_network import save_network
from vbdrop.experiments.records import DETAILS, ENVIRONMENT, RESULT, Record, record_of
from vbdrop.experiments.weights import save_weights
from vbdrop.kernels import formulas_only
from vbdrop.models import build
from vbdrop.objective import noisy_tensors
from vbdrop.train import DivergedError, Epoch, Report, Trained, checkpoint, fit
from vbdrop.train.files import write_json
from vbdrop.train.loop import CHECKPOINT_SECONDS


class BusyError(Exception):
    """Another process is working on the run.

    Example:
        >>> raise BusyError("records/plain-lenet-5-mnist-0123456789ab")
        Traceback (most recent call last):
        vbdrop.experiments.execution.BusyError: records/plain-lenet-5-mnist-0123456789ab
    """


def execute(
    config: Config,
    records: Path,
    *,
    data_dir: Path | None = None,
    report: Report | None = None,
    keep_weights: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Record:
    """Make a run, resume one that was killed, or do nothing if it has ended.

    Args:
        config: Its settings.
        records: The folder of records, in which the run has its own folder.
        data_dir: The folder of the data.
        report: Called after every step.
        keep_weights: Keep the trained model as ``weights.safetensors``.
        checkpoint_seconds: The least time between two checkpoints.

    Returns:
        The run's record, with its result.

    Raises:
        BusyError: Another process is working on it.
        RecordError: Its files are damaged, or belong to another run.
        DataError: The data are missing or damaged.
    """
    record = record_of(config, records)
    record.open(config)
    with record.lock() as held:
        if not held:
            raise BusyError(f"another process is working on {record.folder}")
        if not record.finished:
            with _session(record, config.arithmetic) as seen, computing(config.arithmetic):
                watched = _both(report, seen)
                result = _made(config, record, data_dir, watched, keep_weights, checkpoint_seconds)
            write_json(record.folder / RESULT, result)
        checkpoint.remove(record.folder)
    return record


def computing(arithmetic: str) -> AbstractContextManager[None]:
    """Return the context in which a run of this arithmetic computes.

    Example:
        >>> from vbdrop.kernels.choice import takes
        >>> with computing("plain"):
        ...     takes(torch.zeros(3))
        False
    """
    return formulas_only() if arithmetic == "plain" else nullcontext()


def _made(
    config: Config, record: Record, data_dir: Path | None, report: Report, keep_weights: bool, checkpoint_seconds: float
) -> dict[str, Any]:
    """Train, and return the result of the run."""
    method, data = config.build_method(), examples(config, data_dir)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.budget.seed)
        model = build(config.model, **config.model_args)
    try:
        trained = fit(
            method,
            model,
            data.train,
            data.test,
            config.budget,
            folder=record.folder,
            report=report,
            checkpoint_seconds=checkpoint_seconds,
        )
    except DivergedError as error:
        return _head(config, "diverged") | {"diverged_in_epoch": error.epoch}
    if keep_weights:
        save_weights(trained.model, record.folder)
    if method.family != "regulariser" and not config.n_valid:
        save_network(trained.network, record.folder)
    write_json(record.folder / DETAILS, details(config, trained.model, trained.network, data.test))
    return _figures(config, trained, data.test.inputs[:EXAMPLES])


def _head(config: Config, outcome: str) -> dict[str, Any]:
    return {
        "run": config.id,
        "outcome": outcome,
        "epochs": config.budget.epochs,
        "evaluated_on": config.evaluated_on,
    }


def _figures(config: Config, trained: Trained, examples: Tensor) -> dict[str, Any]:
    """The result of a run: figures of the final epoch, and nothing that depends on the clock or the machine's name."""
    last, evaluation = trained.last, trained.evaluation
    layers = count(trained.network, trace(trained.network.eval(), (examples,)))
    kept, weights = sum(layer.nonzero for layer in layers), sum(layer.weights for layer in layers)
    compact = sum(layer.compact for layer in layers)
    result = _head(config, "finished") | {
        "examples": evaluation.examples,
        "wrong": evaluation.wrong,
        "error": evaluation.error,
        "nll": evaluation.nll,
        "ece": evaluation.ece,
        "loss": last.loss,
        "kl": last.kl,
        "weights": weights,
        "nonzero": kept,
        "ratio": weights / kept if kept else None,
        "units": units(layers),
        "compact_weights": compact,
        "compact_ratio": weights / compact if compact else None,
        "layers": [asdict(layer) for layer in layers],
        "rates": None,
        "network_sha256": _digest(trained.network),
    }
    if next(noisy_tensors(trained.model), None) is not None:
        result["rates"] = {name: asdict(rate) for name, rate in rates(trained.model).items()}
    return result


def _digest(network: nn.Module) -> str:
    """A digest of every bit of the network, so that equal results mean equal networks."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def _session(record: Record, arithmetic: str) -> Iterator[list[Epoch]]:
    """Record where and when this process works on the run: before it starts, and when it has ended."""
    path = record.folder / ENVIRONMENT
    sessions = record.environment["sessions"] if path.exists() else []
    seen: list[Epoch] = []
    start = time.monotonic()
    session: dict[str, Any] = {**environment(arithmetic), "started": now()}
    write_json(path, {"sessions": [*sessions, session]})
    yield seen
    spent = time.monotonic() - start
    training = math.fsum(epoch.seconds for epoch in seen)
    session |= {"ended": now(), "seconds": round(spent, 1), "training_seconds": round(training, 1), "epochs": len(seen)}
    write_json(path, {"sessions": [*sessions, session]})


def _both(report: Report | None, seen: list[Epoch]) -> Report:
    def call(done: int, steps: int, epoch: Epoch | None) -> None:
        if epoch is not None:
            seen.append(epoch)
        if report is not None:
            report(done, steps, epoch)

    return call
