"""One trained model at many thresholds: its error against its size."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from vbdrop.compression.masking import masked_copy


@dataclass(frozen=True)
class SweepPoint:
    """A model at one threshold.

    Attributes:
        threshold: The ``log_alpha`` from which on weights and units are dead.
        score: What ``evaluate`` gave.
        weights: The number of weights (matrices and kernels).
        nonzeros: How many of them are alive.
    """

    threshold: float
    score: float
    weights: int
    nonzeros: int

    @property
    def compression(self) -> float:
        """How many times fewer weights there are."""
        return self.weights / max(1, self.nonzeros)


def sweep(model: nn.Module, evaluate: Callable[[nn.Module], float], thresholds: Iterable[float]) -> list[SweepPoint]:
    """Evaluate one trained model at several thresholds, without training again.

    Args:
        model: A converted model; it is not changed.
        evaluate: Takes a plain, masked model in eval mode and gives its score, such as its test error.
        thresholds: The values of ``log_alpha`` from which on weights and units are dead.

    Returns:
        A point for each threshold, in the given order.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> [p.nonzeros for p in sweep(model, lambda plain: 0.0, [-100.0, 3.0])]
        [0, 8]
    """
    points = []
    for threshold in thresholds:
        plain = masked_copy(model, threshold)
        weights = [parameter for parameter in plain.parameters() if parameter.dim() > 1]
        nonzeros = sum(int(torch.count_nonzero(weight)) for weight in weights)
        with torch.no_grad():
            score = float(evaluate(plain))
        points.append(SweepPoint(float(threshold), score, sum(weight.numel() for weight in weights), nonzeros))
    return points
