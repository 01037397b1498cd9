"""The state from which a killed run resumes as if nothing had happened."""

import hashlib
import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vbdrop.files import write_atomically
from vbdrop.kernels import warn_if_others
from vbdrop.train.files import RecordError

FILE = "checkpoint.pt"
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two epochs.

    Attributes:
        run: Identifies the run, so that no other run resumes from it.
        epoch: The number of finished epochs.
        model: The model's ``state_dict``.
        optimizer: The optimizer's ``state_dict``.
        rng: The state of torch's generator, from which all noise is drawn.
        metrics_bytes: The length of the metrics file at that time.
        shrunk: What has been removed from the model, for a run that shrinks.
        kernels: The compiled kernels in use, as returned by `vbdrop.kernels.in_use`; None if the file does not say.
    """

    run: str
    epoch: int
    model: dict[str, Any]
    optimizer: dict[str, Any]
    rng: Tensor
    metrics_bytes: int
    shrunk: dict[str, Any] | None = None
    kernels: str | None = None


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of a run, replacing the last one.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> save(folder, Checkpoint("abc", 3, {}, {}, torch.get_rng_state(), 0))
        >>> load(folder, run="abc").epoch
        3
    """
    buffer = io.BytesIO()
    torch.save(dict(vars(checkpoint)), buffer)
    content = buffer.getvalue()
    write_atomically(folder / FILE, hashlib.sha256(content).digest() + content)


def load(folder: Path, run: str) -> Checkpoint | None:
    """Read the checkpoint of a folder; None if there is none.

    Only tensors and plain values are read: a file cannot run code.

    Raises:
        RecordError: It is damaged, or belongs to another run.
    """
    path = folder / FILE
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    try:
        if hashlib.sha256(content).digest() != digest:
            raise ValueError("its checksum is wrong")
        checkpoint = Checkpoint(**torch.load(io.BytesIO(content), weights_only=True))
    except (RuntimeError, ValueError, TypeError, pickle.UnpicklingError) as error:
        raise RecordError(
            f"{path} is damaged ({str(error).splitlines()[0]}); delete it to start the run again from its first epoch"
        ) from error
    if checkpoint.run != run:
        raise RecordError(f"{path} belongs to another run ({checkpoint.run}); expected {run}")
    return checkpoint


def warn_if_other_arithmetic(checkpoint: Checkpoint, in_use: str) -> None:
    """Warn if a run resumes with different compiled kernels than it started with, or without them.

    Args:
        checkpoint: Where the run resumes.
        in_use: The kernels of this process.

    Example:
        >>> warn_if_other_arithmetic(Checkpoint("abc", 3, {}, {}, torch.get_rng_state(), 0, kernels="none"), "none")
    """
    warn_if_others(checkpoint.kernels, in_use, checkpoint.epoch)


def remove(folder: Path) -> None:
    """Delete the checkpoint of a folder, if there is one.

    Example:
        >>> remove(Path("no/such/folder"))
    """
    (folder / FILE).unlink(missing_ok=True)
