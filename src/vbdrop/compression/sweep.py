"""One trained model at many thresholds: its error against its size."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from vbdrop.compression.masking import masked_copy
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.summary import summarise


@dataclass(frozen=True)
class SweepPoint:
    """A model at one threshold.

    Attributes:
        threshold: The ``log_alpha`` from which on weights and units are dead.
        score: What ``evaluate`` gave.
        weights: The number of weights (matrices and kernels).
        nonzeros: How many of them are alive.
        bytes: About the bytes that the masked model takes in a file; see `vbdrop.compression.summary.stored_bytes`.
    """

    threshold: float
    score: float
    weights: int
    nonzeros: int
    bytes: int

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
        counts = summarise(plain, plain.state_dict(), Plan(), {}).after
        with torch.no_grad():
            score = float(evaluate(plain))
        points.append(SweepPoint(float(threshold), score, counts.weights, counts.nonzeros, counts.bytes))
    return points
