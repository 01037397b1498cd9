"""How good a network is: its error, its log likelihood and its calibration."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from vbdrop.train.method import Batch

BATCH = 1_000
"""Examples per forward. It is fixed, since the last bits of a sum depend on how it is split."""

BINS = 15
"""The bins of the calibration error."""


@dataclass(frozen=True)
class Evaluation:
    """The performance of a network on a set of examples.

    Attributes:
        examples: The number of examples.
        wrong: The number of wrong predictions.
        nll: The mean negative log likelihood, in nats.
        ece: The expected calibration error: the gap between confidence and accuracy, from 0 to 1.
    """

    examples: int
    wrong: int
    nll: float
    ece: float

    @property
    def error(self) -> float:
        """The error in percent."""
        return 100 * self.wrong / self.examples


@torch.no_grad()
def evaluate(model: nn.Module, examples: Batch) -> Evaluation:
    """Evaluate a classifier in eval mode; its mode and torch's random state are restored afterwards.

    Args:
        model: Maps inputs to logits.
        examples: Inputs and classes.

    Raises:
        FloatingPointError: An output of the model is not a number.

    Example:
        >>> from vbdrop.models import mlp
        >>> evaluate(mlp(12), Batch(torch.rand(50, 1, 28, 28), torch.zeros(50, dtype=torch.long))).examples
        50
    """
    log_probabilities = predict_log_probabilities(model, examples)
    if log_probabilities.isnan().any():
        raise FloatingPointError("the outputs of the network are not numbers.")
    right = log_probabilities.argmax(-1) == examples.targets
    return Evaluation(
        examples=len(examples.targets),
        wrong=int((~right).sum()),
        nll=nll_loss(log_probabilities, examples.targets).item(),
        ece=calibration_error(log_probabilities.amax(-1).exp(), right),
    )


@torch.no_grad()
def predict_log_probabilities(model: nn.Module, examples: Batch) -> Tensor:
    """Return the log probability of every class for every example, in eval mode and float64.

    Example:
        >>> from vbdrop.models import mlp
        >>> batch = Batch(torch.rand(3, 1, 28, 28), torch.zeros(3, dtype=torch.long))
        >>> predict_log_probabilities(mlp(12), batch).shape
        torch.Size([3, 10])
    """
    if len(examples.targets) == 0:
        raise ValueError("`examples` must hold at least one example; got none.")
    with _quietly(model):
        parts = [model(inputs).log_softmax(-1) for inputs in torch.split(examples.inputs, BATCH)]
    return torch.cat(parts).double()


def calibration_error(confidence: Tensor, right: Tensor, bins: int = BINS) -> float:
    """Return the expected calibration error (Guo et al. 2017), with bins of equal width.

    ``sum_b n_b / n * |accuracy_b - confidence_b|``

    Args:
        confidence: The probability of the predicted class, one per example.
        right: Whether the prediction was correct.
        bins: The number of bins between 0 and 1.

    Example:
        >>> round(calibration_error(torch.tensor([0.9, 0.9]), torch.tensor([True, False])), 6)
        0.4
    """
    confidence = confidence.double()
    gap = _binned(confidence, right.double() - confidence, bins)
    return gap.abs().sum().item() / len(confidence)


@dataclass(frozen=True)
class CalibrationBin:
    """A group of predictions with similar confidence.

    Attributes:
        count: The number of predictions.
        confidence: Their mean confidence.
        accuracy: The share of correct ones.
    """

    count: int
    confidence: float
    accuracy: float


def calibration_bins(confidence: Tensor, right: Tensor, bins: int = BINS) -> list[CalibrationBin]:
    """Return the non-empty bins of the calibration error, ordered by confidence.

    Args:
        confidence: The probability of the predicted class, one per example.
        right: Whether the prediction was correct.
        bins: The number of bins between 0 and 1.

    Example:
        >>> calibration_bins(torch.tensor([0.75, 0.75, 0.25]), torch.tensor([True, False, True]), bins=4)
        [CalibrationBin(count=1, confidence=0.25, accuracy=1.0), CalibrationBin(count=2, confidence=0.75, accuracy=0.5)]
    """
    confidence = confidence.double()
    sums = [_binned(confidence, values, bins) for values in (torch.ones_like(confidence), confidence, right.double())]
    return [
        CalibrationBin(int(count), total / count, hits / count)
        for count, total, hits in zip(*(each.tolist() for each in sums), strict=True)
        if count
    ]


def _binned(confidence: Tensor, values: Tensor, bins: int) -> Tensor:
    """The sum of the values in each bin of equal width."""
    index = (confidence * bins).long().clamp(max=bins - 1)
    return torch.zeros(bins, dtype=torch.float64).index_add_(0, index, values)


@contextmanager
def _quietly(model: nn.Module) -> Iterator[None]:
    """Eval mode inside a ``with`` block; mode and random state are restored afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
