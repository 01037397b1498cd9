"""One trained model at many thresholds: its error against its size."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vbdrop.compression.compress import Compression, Inputs, figure_of


@dataclass(frozen=True)
class SweepPoint:
    """A model at one threshold.

    Attributes:
        threshold: The ``log_alpha`` at or above which weights and units are dead.
        score: The result of ``evaluate``.
        weights: The number of weights (matrices and kernels) before compression.
        nonzeros: How many of the small model's weights are not zero.
        bytes: The approximate bytes of the small model in a file; see `vbdrop.compression.summary.stored_bytes`.
    """

    threshold: float
    score: float
    weights: int
    nonzeros: int
    bytes: int

    @property
    def compression(self) -> float:
        """The factor by which the number of weights fell."""
        return self.weights / max(1, self.nonzeros)


def sweep(
    model: nn.Module,
    example_inputs: Inputs,
    evaluate: Callable[[nn.Module], float],
    thresholds: Iterable[float],
    *,
    example_kwargs: Mapping[str, Any] | None = None,
) -> list[SweepPoint]:
    """Compress one trained model at several thresholds and evaluate each small model, without retraining.

    Args:
        model: A converted model; it is not changed.
        example_inputs: Inputs that the model accepts, as for `vbdrop.compress`.
        evaluate: Takes the small model in eval mode and returns its score, such as its test error.
        thresholds: The values of ``log_alpha`` at or above which weights and units are dead.
        example_kwargs: Additional inputs by name.

    Returns:
        One point per threshold, in the given order, with the counts of `vbdrop.compress` at that threshold.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> [p.nonzeros for p in sweep(model, torch.zeros(1, 4), lambda small: 0.0, [-100.0, 3.0])]
        [0, 8]
    """
    if not callable(evaluate):
        raise TypeError(f"`evaluate` must be a function of a model; got {type(evaluate).__name__}.")
    levels = _numbers(thresholds)
    compression = Compression(model, example_inputs, example_kwargs)
    points = []
    for threshold in levels:
        small = compression.at(threshold)
        before, after = small.summary().before, small.summary().after
        with torch.no_grad():
            score = figure_of(evaluate, small.model)
        points.append(SweepPoint(threshold, score, before.weights, after.nonzeros, after.bytes))
    return points


def _numbers(thresholds: object) -> list[float]:
    try:
        return [float(threshold) for threshold in thresholds]  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise TypeError(f"`thresholds` must be a list of numbers; got {thresholds!r}.") from error
