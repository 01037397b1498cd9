"""How good a network is: its error, its log likelihood and its calibration."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from vbdrop.train.method import Batch

BATCH = 1_000
"""Examples a forward. It is fixed, since the last bits of a sum depend on how it is cut."""

BINS = 15
"""The bins of the calibration error."""


@dataclass(frozen=True)
class Evaluation:
    """What a network does on a set of examples.

    Attributes:
        examples: How many they are.
        wrong: How many it gets wrong.
        nll: The mean negative log likelihood, in nats.
        ece: The expected calibration error: how far confidence and accuracy are apart, between 0 and 1.
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

    Example:
        >>> from vbdrop.models import mlp
        >>> evaluate(mlp(12), Batch(torch.rand(50, 1, 28, 28), torch.zeros(50, dtype=torch.long))).examples
        50
    """
    if len(examples.targets) == 0:
        raise ValueError("`examples` must hold at least one example; got none.")
    with _quietly(model):
        parts = [model(inputs).log_softmax(-1) for inputs in torch.split(examples.inputs, BATCH)]
    log_probabilities = torch.cat(parts).double()
    right = log_probabilities.argmax(-1) == examples.targets
    return Evaluation(
        examples=len(examples.targets),
        wrong=int((~right).sum()),
        nll=nll_loss(log_probabilities, examples.targets).item(),
        ece=calibration_error(log_probabilities.amax(-1).exp(), right),
    )


def calibration_error(confidence: Tensor, right: Tensor, bins: int = BINS) -> float:
    """Return the expected calibration error (Guo et al. 2017), with bins of equal width.

    ``sum_b n_b / n * |accuracy_b - confidence_b|``

    Args:
        confidence: The probability of the predicted class, an example each.
        right: Whether the prediction was right.
        bins: The number of bins between 0 and 1.

    Example:
        >>> round(calibration_error(torch.tensor([0.9, 0.9]), torch.tensor([True, False])), 6)
        0.4
    """
    confidence = confidence.double()
    index = (confidence * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, right.double() - confidence)
    return gap.abs().sum().item() / len(confidence)


@contextmanager
def _quietly(model: nn.Module) -> Iterator[None]:
    """Eval mode and, whatever the forward draws, the same random state afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
