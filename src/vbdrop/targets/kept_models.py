"""The models kept on the way to a target: one each time the size has fallen far enough."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from vbdrop.compression import Compressed, Plan, compress, load
from vbdrop.compression.files.model_file import save
from vbdrop.compression.files.outline import allocated, outline
from vbdrop.compression.planning.replaced_modules import note_replaced
from vbdrop.targets.target import Inputs

STEP = 0.7
"""A model is kept once its size is at most this share of that of the last one kept."""


@dataclass(frozen=True)
class KeptModel:
    """The model after one epoch of the press stage; it was not trained any further.

    Attributes:
        epoch: The number of epochs before it.
        size: The size of its small model, in the target's unit.
        times: How many times smaller that is than the whole model.
        error: Its error on validation data; None without such data.
        content: The file of the plain model, with zeros for what is gone; they take almost no space.
        outlined: The outline of the original model, and the devices of its tensors.
        inputs: Example inputs.
        round_to: The widths of layers that lose units are multiples of this.
    """

    epoch: int
    size: float
    times: float
    error: float | None
    content: bytes = field(repr=False)
    outlined: tuple[nn.Module, dict[str, torch.device]] = field(repr=False, compare=False)
    inputs: Inputs = field(repr=False, compare=False)
    round_to: int = field(default=1, repr=False)

    @cached_property
    def small(self) -> Compressed:
        """What `vbdrop.compress` gives: the small model, its plan and its summary."""
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
            path = Path(folder) / "plain.safetensors"
            path.write_bytes(self.content)
            return compress(load(path, model=allocated(*self.outlined)), self.inputs, round_to=self.round_to)

    @property
    def model(self) -> nn.Module:
        """The small model: plain layers, in eval mode."""
        return self.small.model

    def save(self, path: str | Path, dtype: Literal["float32", "float16"] | None = None) -> int:
        """Write the small model as one safetensors file, for `vbdrop.load`; returns its bytes."""
        return self.small.save(path, dtype)

    def figures(self) -> dict[str, Any]:
        """The figures of the model, as plain data."""
        return {"epoch": self.epoch, "size": self.size, "times": self.times, "error": self.error}


class KeptModels:
    """Keeps the models of a run.

    Args:
        original: The original model; what happens to it later does not matter.
        inputs: Example inputs.
        before: The size of the original, in the target's unit.
        least: Models smaller than this are not kept: the final result is about as small.
        round_to: The widths of layers that lose units are multiples of this.

    Attributes:
        models: Those kept so far, the largest first.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> kept = KeptModels(model, torch.zeros(2, 4), before=18, least=2)
        >>> kept.is_next(14), kept.is_next(9)
        (False, True)
        >>> kept.add(epoch=2, size=9, error=2.5, plain=model)
        >>> kept.models
        [KeptModel(epoch=2, size=9, times=2.0, error=2.5)]
    """

    def __init__(self, original: nn.Module, inputs: Inputs, before: float, least: float, round_to: int = 1) -> None:
        self._outlined, self._inputs, self._round_to = outline(original), inputs, round_to
        self._before, self._least = before, least
        self.models: list[KeptModel] = []

    def is_next(self, size: float) -> bool:
        """Whether a model of this size is to be kept."""
        last = self.models[-1].size if self.models else self._before
        return self._least <= size <= STEP * last

    def add(self, epoch: int, size: float, error: float | None, plain: nn.Module) -> None:
        """Keep a model.

        Args:
            epoch: The number of epochs so far.
            size: The size of its small model.
            error: Its error.
            plain: The plain model in the original shape, with zeros for what is gone. If its state holds more than
                tensors, it has no file and is not kept.
        """
        plan = Plan()
        note_replaced(plan, plain)  # such as norms with gates, which have a scale now
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plain.safetensors"
            try:
                save(path, plain, plan)
            except ValueError:
                return
            self._add(epoch, size, error, path.read_bytes())

    def _add(self, epoch: int, size: float, error: float | None, content: bytes) -> None:
        times = self._before / size
        kept = KeptModel(epoch, size, times, error, content, self._outlined, self._inputs, self._round_to)
        self.models.append(kept)

    def state(self) -> list[dict[str, Any]]:
        """What a checkpoint needs to resume."""
        return [
            {
                "epoch": one.epoch, "size": one.size, "error": one.error,
                "content": torch.frombuffer(bytearray(one.content), dtype=torch.uint8),
            }
            for one in self.models
        ]  # fmt: skip

    def load_state(self, state: list[Mapping[str, Any]]) -> None:
        """Resume from a `state`."""
        for one in state:
            self._add(one["epoch"], one["size"], one["error"], one["content"].numpy().tobytes())
