"""The result of `vbdrop.shrink`."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from vbdrop.compression import Compressed, Plan
from vbdrop.compression.files.model_file import Dtype
from vbdrop.compression.summary import Summary
from vbdrop.exporting import Exported, export
from vbdrop.targets.kept_models import KeptModel
from vbdrop.targets.path import Stage
from vbdrop.targets.pursuit import CutCost, WalkPoint
from vbdrop.targets.sizes import in_words
from vbdrop.targets.target import Target, Unit


@dataclass(frozen=True)
class CurvePoint:
    """The run after one epoch.

    Attributes:
        epoch: The epochs so far.
        stage: The stage of this one.
        size: The size of the model, in the target's unit.
        path: The size that the path asked for.
        loss: The mean training loss of the epoch, without the KL.
        error: The error on validation data, of the plain model that compression would give; None without such data.
        kl_weight: The KL weight at the end of the epoch; 0 outside the press stage.
    """

    epoch: int
    stage: Stage
    size: float
    path: float
    loss: float
    error: float | None
    kl_weight: float


@dataclass(frozen=True)
class ShrinkResult:
    """The small model and the course of its run; it can be printed.

    Attributes:
        small: The result of `vbdrop.compress`: the small model, its plan and its summary.
        target: The target.
        unit: What the target counts.
        limit: The largest size that it allows; None for ``within``.
        before: The size of the original model.
        size: The size of the small model.
        error_before: The error of the network before anything was removed; None without validation data.
        error: The error of the small model; None without validation data.
        curve: One point per epoch.
        walk: The updates of the controller.
        cut: The cost of the cut.
        kept: Larger models kept on the way, one each time the size had fallen by 30 %, as they were in the press stage.
            Each has a ``size``, an ``error``, a ``model`` and ``save``.
    """

    small: Compressed
    target: Target
    unit: Unit
    limit: float | None
    before: float
    size: float
    error_before: float | None
    error: float | None
    curve: list[CurvePoint]
    walk: list[WalkPoint] = field(default_factory=list)
    cut: CutCost | None = None
    kept: list[KeptModel] = field(default_factory=list)

    @property
    def model(self) -> nn.Module:
        """The small model: plain layers, in eval mode."""
        return self.small.model

    @property
    def plan(self) -> Plan:
        """What was removed, as data."""
        return self.small.plan

    @property
    def times(self) -> float:
        """How many times smaller the model is, in the target's unit; nothing left counts as one."""
        return self.before / (self.size or 1.0)

    def summary(self) -> Summary:
        """The counts before and after, one row per layer; it can be printed."""
        return self.small.summary()

    def save(self, path: str | Path, dtype: Dtype | None = None) -> int:
        """Write the small model as one safetensors file, for `vbdrop.load`; returns its bytes."""
        return self.small.save(path, dtype)

    def export(self, path: str | Path) -> Exported:
        """Write the small model in the format of the file's ending, as `vbdrop.export` does."""
        return export(self.small, path)

    def figures(self) -> dict[str, Any]:
        """The figures of the run, without the model, as plain data."""
        return {
            "target": repr(self.target),
            "unit": self.unit,
            "limit": self.limit,
            "before": self.before,
            "size": self.size,
            "times": self.times,
            "error_before": self.error_before,
            "error": self.error,
            "layers": [asdict(layer) for layer in self.summary().layers],
            "curve": [asdict(point) for point in self.curve],
            "walk": [asdict(point) for point in self.walk],
            "cut": None if self.cut is None else asdict(self.cut),
            "kept": [one.figures() for one in self.kept],
        }

    def to_json(self) -> str:
        """The figures as JSON."""
        return json.dumps(self.figures(), indent=1)

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" (at most {in_words(self.limit, self.unit)})"
        ratio = (
            f"{self.times:.1f} times {'faster' if self.unit == 'latency' else 'fewer'}" if self.size else "none left"
        )
        lines = [f"{in_words(self.before, self.unit)} before, {in_words(self.size, self.unit)} now{limit}: {ratio}"]
        if self.error is not None and self.error_before is not None:
            lines.append(f"validation error {self.error_before:.4g} before, {self.error:.4g} now")
        return "\n".join([*lines, str(self.summary())])

    __repr__ = __str__
