"""The file in which a run of `vbdrop.shrink` is saved between epochs."""

import hashlib
import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vbdrop.files import write_atomically
from vbdrop.kernels import in_use, warn_if_others


class OtherRunError(ValueError):
    """A checkpoint belongs to another run."""


class RunFile:
    """A checkpoint that knows which run it belongs to; it holds tensors and plain values, and cannot run code.

    Args:
        path: The file; its folder must exist.
        identity: What the run is, as plain data. A different run does not resume from it.
        former: The identity that an older version gave to the same run, or None; its files load, too.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "run.pt"
        >>> RunFile(path, {"seed": 1}).save({"done": 3})
        >>> RunFile(path, {"seed": 1}).load()
        {'done': 3}
        >>> RunFile(path, {"seed": 2}).load()
        Traceback (most recent call last):
        vbdrop.targets.run_file.OtherRunError: ... is the checkpoint of another run: use another file, or ...
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], former: Mapping[str, Any] | None = None) -> None:
        if path.is_dir():
            raise IsADirectoryError(f"`checkpoint` must be a file; {path} is a folder.")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"`checkpoint` must be a file in a folder that exists; there is no {path.parent}.")
        self.path = path
        self._run = _digest_of(identity)
        self._former = None if former is None else _digest_of(former)

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the file."""
        buffer = io.BytesIO()
        torch.save({"run": self._run, "state": dict(state), "kernels": in_use()}, buffer)
        content = buffer.getvalue()
        write_atomically(self.path, hashlib.sha256(content).digest() + content)

    def load(self) -> dict[str, Any] | None:
        """The state, or None if there is no file yet. Warns if the compiled kernels have changed.

        Raises:
            OtherRunError: The file belongs to another run.
            ValueError: The file is damaged.
        """
        if not self.path.exists():
            return None
        stored = self.path.read_bytes()
        size = hashlib.sha256().digest_size
        try:
            if hashlib.sha256(stored[size:]).digest() != stored[:size]:
                raise ValueError("its checksum is wrong")
            found = torch.load(io.BytesIO(stored[size:]), weights_only=True)
            run, state = found["run"], found["state"]
        except (RuntimeError, ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
            raise ValueError(
                f"{self.path} is damaged ({str(error).splitlines()[0]}); delete it to start again."
            ) from error
        if run not in (self._run, self._former):
            raise OtherRunError(f"{self.path} is the checkpoint of another run: use another file, or delete this one.")
        kept: dict[str, Any] = state
        warn_if_others(found.get("kernels"), in_use(), kept.get("done", 0))
        return kept


def digest(model: nn.Module) -> str:
    """A digest of the parameters and buffers of a model, to the last bit.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> before = digest(model)
        >>> _ = model.bias.data.add_(1)
        >>> digest(model) == before
        False
    """
    found = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, torch.Tensor):  # the extra state of a module
            continue
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _digest_of(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
