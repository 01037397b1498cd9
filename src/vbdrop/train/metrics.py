"""The figures that a run writes after every epoch, one line of JSON each."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from vbdrop.train.evaluation import Evaluation
from vbdrop.train.files import RecordError
from vbdrop.train.sparsity import Sparsity


@dataclass(frozen=True)
class Epoch:
    """The figures of an epoch.

    Attributes:
        epoch: The number of finished epochs.
        loss: The mean training loss over the epoch.
        lr: The schedule's factor on the learning rates at the end of the epoch.
        seconds: Its duration, without the evaluation.
        kl: The KL of the weights from their priors, for a variational network.
        evaluation: The evaluation of the network as if training ended here; None if the epoch is not evaluated.
        sparsity: The weights of the same network.
    """

    epoch: int
    loss: float
    lr: float
    seconds: float
    kl: float | None = None
    evaluation: Evaluation | None = None
    sparsity: Sparsity | None = None

    def as_line(self) -> dict[str, Any]:
        """Return the epoch as flat JSON, without missing figures.

        Example:
            >>> Epoch(1, 0.3, 1.0, 2.5, evaluation=Evaluation(200, 3, 0.1, 0.01)).as_line()
            {'epoch': 1, 'loss': 0.3, 'lr': 1.0, 'error': 1.5, 'nll': 0.1, 'ece': 0.01, 'seconds': 2.5}
        """
        line: dict[str, Any] = {"epoch": self.epoch, "loss": self.loss, "lr": self.lr}
        if self.kl is not None:
            line["kl"] = self.kl
        if self.evaluation is not None:
            line |= {"error": self.evaluation.error, "nll": self.evaluation.nll, "ece": self.evaluation.ece}
        if self.sparsity is not None:
            line |= {"weights": self.sparsity.weights, "nonzero": self.sparsity.nonzero}
        return line | {"seconds": round(self.seconds, 3)}


class MetricsLog:
    """The file ``metrics.jsonl`` of a run, open for writing.

    Args:
        path: The file.
        offset: Its length in bytes at the checkpoint; anything beyond is cut off.

    Raises:
        RecordError: The file is shorter than that.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.jsonl"
        >>> with MetricsLog(path) as log:
        ...     log.append(Epoch(1, loss=0.5, lr=1.0, seconds=0.1))
        >>> read_metrics(path)
        [{'epoch': 1, 'loss': 0.5, 'lr': 1.0, 'seconds': 0.1}]
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._file = path.open("ab")
        size = self._file.tell()
        if size < offset:
            self._file.close()
            raise RecordError(
                f"{path} is damaged: it must have at least the {offset} bytes of the checkpoint; got {size}"
            )
        self._file.truncate(offset)
        self._file.seek(offset)

    def append(self, epoch: Epoch) -> None:
        """Add a line."""
        self._file.write((json.dumps(epoch.as_line(), allow_nan=False) + "\n").encode())
        self._file.flush()

    def saved_bytes(self) -> int:
        """Flush all lines to disk, and return their length in bytes."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a metrics file, without an incomplete last line.

    Raises:
        RecordError: The file is missing, or a line is not a JSON object.
    """
    try:
        lines = path.read_text().split("\n")[:-1]
        epochs = [json.loads(line) for line in lines]
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}") from error
    if not all(isinstance(epoch, dict) for epoch in epochs):
        raise RecordError(f"{path} is damaged: every line must be a JSON object")
    return epochs
