"""Default losses and errors, for targets that are classes or numbers."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.targets.batches import Batches, ModelBatch

Loss = Callable[[Any, Any], Tensor]
"""``loss(outputs, targets)``, the mean over a batch."""


def default_loss(outputs: Any, targets: Any) -> Tensor:  # noqa: ANN401
    """Cross-entropy for classes, the mean squared error for numbers.

    Example:
        >>> round(default_loss(torch.zeros(2, 4), torch.tensor([0, 3])).item(), 3)
        1.386
    """
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        raise TypeError(
            "the default loss needs a model and targets that are tensors; got "
            f"{type(outputs).__name__} and {type(targets).__name__}. Pass loss=, a function of outputs and targets."
        )
    if not targets.is_floating_point():
        return nn.functional.cross_entropy(outputs, targets)
    return nn.functional.mse_loss(outputs.reshape(targets.shape), targets)


def checked_loss(loss: Loss, model: nn.Module, batch: ModelBatch) -> Tensor:
    """The loss of a batch.

    Raises:
        TypeError: It is not one floating-point number.
    """
    value = loss(batch.outputs(model), batch.targets)
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise TypeError(f"`loss` must return one floating-point number, the mean over the batch; got {got}.")
    return value.reshape(())


@torch.no_grad()
def error_of(model: nn.Module, batches: Batches, loss: Loss) -> float:
    """The error of a model in eval mode: percent of wrong classes, or the mean loss if targets are numbers.

    Example:
        >>> x = torch.eye(3)
        >>> batches = Batches((x, torch.tensor([0, 1, 1])), "valid", nn.Linear(3, 3))
        >>> round(error_of(nn.Identity(), batches, default_loss), 1)
        33.3
    """
    mode, total, count = model.training, 0.0, 0
    model.eval()
    try:
        for batch in batches:
            outputs, targets = batch.outputs(model), batch.targets
            if _are_classes(outputs, targets):
                total += 100.0 * float((outputs.argmax(1) != targets).sum())
                count += targets.numel()
            else:
                total += float(loss(outputs, targets)) * len(batch)
                count += len(batch)
    finally:
        model.train(mode)
    return total / max(1, count)


@torch.no_grad()
def standard_error(error: float, model: nn.Module, batches: Batches) -> float:
    """The standard error of an `error_of`, as far as it is known: for a share of wrong classes; 0 for a mean loss.

    Example:
        >>> batches = Batches((torch.eye(4), torch.tensor([0, 1, 2, 0])), "valid", nn.Linear(4, 4))
        >>> round(standard_error(25.0, nn.Identity(), batches), 1)
        21.7
    """
    mode = model.training
    first = next(iter(batches))
    classes = _are_classes(first.outputs(model.eval()), first.targets)
    model.train(mode)
    if not classes:
        return 0.0
    return math.sqrt(error * (100.0 - error) / sum(batch.targets.numel() for batch in batches))


def _are_classes(outputs: Any, targets: Any) -> bool:  # noqa: ANN401
    both = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
    return bool(both and not targets.is_floating_point() and outputs.dim() == targets.dim() + 1)
