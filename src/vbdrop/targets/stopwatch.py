"""The time of a model in one runtime, measured, and the times of its layers with fewer channels."""

import inspect
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from vbdrop.analysis.graph import size_of
from vbdrop.analysis.layer_shapes import owner
from vbdrop.compression import Compressed, compress
from vbdrop.exporting.exporting import export, plain_copy
from vbdrop.exporting.measure import time_runtimes
from vbdrop.exporting.runtimes import RUNTIMES, in_torch
from vbdrop.exporting.runtimes import Runtime as TimedRuntime
from vbdrop.targets.layer_times import CONVOLUTIONS, LayerTimes, time_layer, undisturbed
from vbdrop.targets.sizes import SizeCounter

ROUNDS = 200
"""How many times a whole model is timed."""

LAYERS: tuple[type[Any], ...] = (nn.Linear, *CONVOLUTIONS)
"""Layers that are timed with fewer channels; others count as they are."""


class Stopwatch:
    """Measures small models as `vbdrop.measure` does, each against the original in the same rounds.

    A machine is not equally busy at all times, so the time of a small model is scaled by the ratio of the original's
    time at the start to its time now.

    Args:
        model: The original, plain.
        args: Example inputs by position.
        kwargs: Example inputs by name.
        runtime: ``"onnx"``, ``"torch"`` or ``"c"``.
        batch: The number of examples per call.
        round_to: The widths of layers that lose units are multiples of this.
    """

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        runtime: str,
        batch: int,
        round_to: int = 1,
    ) -> None:
        self._model, self.runtime, self.batch, self._round_to = model, runtime, batch, round_to
        inputs = inspect.signature(model.forward).bind(*args, **kwargs).args
        self._plain, self._inputs = plain_copy(model, inputs)
        self._original: TimedRuntime | None = None

    def whole(self) -> tuple[float, float]:
        """Seconds per call of the original, and the same in the runtime in which it is timed beside small models."""
        return self._measured(self._plain)

    def _measured(self, small: nn.Module | Compressed) -> tuple[float, float]:
        """Seconds per call of a model, and those of the original in the same rounds."""
        if self._original is None:
            self._original = self._opened(self._plain) if self.runtime == "onnx" else in_torch(self._plain)
        runtimes = {"small": self._opened(small), "original": self._original}
        found = time_runtimes(runtimes, self._inputs, self.batch, ROUNDS)
        return undisturbed(found["small"]), undisturbed(found["original"])

    def _opened(self, model: nn.Module | Compressed) -> TimedRuntime:
        """A model, ready to be timed; the file that it was loaded from has been deleted."""
        if self.runtime == "torch":
            return in_torch(plain_copy(model, self._inputs)[0])
        with tempfile.TemporaryDirectory(prefix="vbdrop-") as folder:
            ending = f".{self.runtime}"
            return RUNTIMES[ending][1](export(model, Path(folder) / f"model{ending}", self._inputs).path)

    def seconds(self, small: nn.Module | Compressed, reference: float) -> float:
        """Seconds per call of a small model, on this machine as it was when the original took ``reference``."""
        seconds, now = self._measured(small)
        return seconds * reference / now

    def compressed(self, plain: nn.Module, reference: float) -> float:
        """The same for a plain model with zeros, after compression."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the smallest network that is measured may be a constant
            small = compress(plain, self._inputs, round_to=self._round_to)
        return self.seconds(small, reference)


@dataclass(frozen=True)
class Timing:
    """All times that a pursuit needs; measured once, then kept with the run.

    Attributes:
        before: Seconds per call of the whole model.
        reference: The same in the runtime in which the original is timed beside later models.
        layers: Weight -> the times of its layer.
        transposed: The weights whose first axis runs over inputs.
        line: Intercept and slope of the line from the sum of the layers' times to the time of a model, through the
            measured times of the whole model and the smallest.
    """

    before: float
    reference: float
    layers: dict[str, LayerTimes]
    transposed: list[str]
    line: tuple[float, float]

    @classmethod
    def of(cls, watch: Stopwatch, counter: SizeCounter, smallest: nn.Module) -> "Timing":
        """Measure a model, its layers, and the smallest model that can be reached."""
        layers: dict[str, LayerTimes] = {}
        for site in counter.facts.products:
            layer = counter.plain.get_submodule(owner(site.weight))
            if site.weight not in layers and isinstance(layer, LAYERS):
                shape = [int(size) for size in size_of(site.source)]
                shape[0] = shape[0] * watch.batch // counter.batch
                layers[site.weight] = time_layer(layer, shape, watch.runtime)
        transposed = sorted({site.weight for site in counter.facts.products if site.transposed})
        before, reference = watch.whole()
        timing = cls(before, reference, layers, transposed, (0.0, 1.0))
        most = timing.seconds(counter.before.shapes)
        fewest = timing.seconds(counter.count_plain(smallest).shapes)
        gained = max(0.0, before - watch.compressed(smallest, reference))
        slope = gained / (most - fewest) if most > fewest else 0.0
        return replace(timing, line=(before - slope * most, slope))

    def seconds(self, shapes: Mapping[str, Sequence[int]]) -> float:
        """The time of a model whose weights have these shapes; a removed layer takes no time."""
        total = 0.0
        for weight, times in self.layers.items():
            if (shape := shapes.get(weight)) is not None:
                sides: Sequence[float] = shape[:2] if weight in self.transposed else (shape[1], shape[0])
                if weight in self.transposed and times.n_inputs:  # the second axis has the outputs of one group
                    sides = shape[0], times.outputs[-1] * shape[0] / times.n_inputs
                total += times(*sides)
        return self.line[0] + self.line[1] * total

    def as_data(self) -> dict[str, Any]:
        """Numbers, lists and strings, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Timing":
        """Read the result of :meth:`as_data`."""
        layers = {
            name: LayerTimes(**{**times, "blocks": tuple(times["blocks"])}) for name, times in data["layers"].items()
        }
        return cls(**{**data, "layers": layers, "line": tuple(data["line"])})
