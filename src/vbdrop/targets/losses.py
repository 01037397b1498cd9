"""Default losses and errors, for targets that are classes or numbers."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vbdrop.convert.evaluating import evaluating
from vbdrop.targets.batches import Batches, ModelBatch, described

Loss = Callable[[Any, Any], Tensor]
"""``loss(outputs, targets)``, the mean over a batch."""

IGNORED = -100
"""The target of an element that is not judged, such as padding; torch's cross-entropy ignores it, too."""


def default_loss(outputs: Any, targets: Any) -> Tensor:  # noqa: ANN401
    """Cross-entropy for classes, the mean squared error for numbers.

    Example:
        >>> round(default_loss(torch.zeros(2, 4), torch.tensor([0, 3])).item(), 3)
        1.386
    """
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        raise TypeError(
            "the default loss needs outputs and targets that are tensors; got "
            f"{type(outputs).__name__} and {type(targets).__name__}. Pass loss=, a function of outputs and targets."
        )
    if not targets.is_floating_point():
        return nn.functional.cross_entropy(outputs, targets)
    return nn.functional.mse_loss(outputs.reshape(targets.shape), targets)


def try_batch(batch: ModelBatch, what: str, model: nn.Module, loss: Callable[[Any, Any], Any]) -> None:
    """Run the model and the loss on a batch once, before anything is trained.

    Args:
        batch: A batch.
        what: The name of the argument that it comes from.
        model: The model.
        loss: A function of outputs and targets.

    Raises:
        TypeError: The model or the loss raises one; the message says what they got.
        ValueError: They raise any other exception.
    """
    given = str(batch)
    try:
        outputs = batch.outputs(model)
        given = f"{given}, and outputs {described(outputs)}"
        loss(outputs, batch.targets)
    except Exception as error:  # a model and a loss may raise anything
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"`{what}` must fit the model and the loss; with {given}, they raised {type(error).__name__}: "
            f"{str(error).rstrip('.')}. Change the data, or pass split=, a function of a batch that returns "
            "(inputs, targets), or loss=, a function of outputs and targets."
        ) from error


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


def check_finite(batch: ModelBatch, what: str) -> None:
    """Refuse a batch with numbers that are not finite.

    Raises:
        ValueError: The batch has a NaN or an infinity.
    """
    if not batch.is_finite:
        raise ValueError(f"`{what}` must hold finite numbers; a batch has NaN or infinity in its inputs or targets.")


@torch.no_grad()
def error_of(model: nn.Module, batches: Batches, loss: Loss) -> float:
    """The error of a model in eval mode: percent of wrong classes, or the mean loss if targets are numbers.

    A single output, such as a logit, is never a choice among classes, so that integer targets have a mean loss, too.
    Targets of `IGNORED` count neither as right nor as wrong.

    Raises:
        ValueError: The data hold numbers that are not finite, and so the outputs or the loss are not finite either.

    Example:
        >>> x = torch.eye(3)
        >>> batches = Batches((x, torch.tensor([0, 1, 1])), "valid", nn.Linear(3, 3))
        >>> round(error_of(nn.Identity(), batches, default_loss), 1)
        33.3
    """
    total, count = 0.0, 0
    with evaluating(model):
        for batch in batches:
            outputs, targets = batch.outputs(model), batch.targets
            axis = class_axis(outputs, targets, loss)
            if axis is not None:
                value = float(outputs.sum())
                total += 100.0 * float(((outputs.argmax(axis) != targets) & (targets != IGNORED)).sum())
                count += _n_judged(targets)
            else:
                value = float(loss(outputs, targets))
                total += value * len(batch)
                count += len(batch)
            if not math.isfinite(value):
                check_finite(batch, batches.what)
    return total / max(1, count)


@torch.no_grad()
def standard_error(error: float, model: nn.Module, batches: Batches) -> float:
    """The standard error of a result of `error_of` that is a share of wrong classes; 0 (unknown) for a mean loss.

    Example:
        >>> batches = Batches((torch.eye(4), torch.tensor([0, 1, 2, 0])), "valid", nn.Linear(4, 4))
        >>> round(standard_error(25.0, nn.Identity(), batches), 1)
        21.7
    """
    first = next(iter(batches))
    with evaluating(model):
        classes = are_classes(first.outputs(model), first.targets)
    if not classes:
        return 0.0
    return math.sqrt(error * (100.0 - error) / max(1, sum(_n_judged(batch.targets) for batch in batches)))


def _n_judged(targets: Tensor) -> int:
    return int((targets != IGNORED).sum())


def are_classes(outputs: Any, targets: Any) -> bool:  # noqa: ANN401
    """Whether the targets are classes, one for each vector of outputs."""
    return bool(_class_axes(outputs, targets))


def class_axis(outputs: Any, targets: Any, loss: Loss) -> int | None:  # noqa: ANN401
    """The axis of the outputs that runs over classes; None if the targets are not classes.

    It is the second axis, as in torch's cross-entropy, or the last one, for a loss that moves it, and has at least two
    entries. If the shapes allow both, the loss decides: it is lower for outputs that are right along the axis that it
    uses.

    Example:
        >>> steps_first = lambda outputs, targets: default_loss(outputs.movedim(-1, 1), targets)
        >>> class_axis(torch.zeros(1, 3, 3), torch.tensor([[0, 0, 2]]), steps_first)
        2
    """
    axes = _class_axes(outputs, targets)
    if len(axes) < 2:
        return axes[0] if axes else None
    right = 20 * nn.functional.one_hot(targets.long().clamp(0, outputs.shape[1] - 1), outputs.shape[1])
    return min(axes, key=lambda axis: float(loss(right.movedim(-1, axis).to(outputs), targets)))


def _class_axes(outputs: Any, targets: Any) -> list[int]:  # noqa: ANN401
    both = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
    if not both or targets.is_floating_point() or outputs.dim() != targets.dim() + 1:
        return []
    axes = sorted({min(1, targets.dim()), targets.dim()})
    fitting = [axis for axis in axes if outputs.shape[:axis] + outputs.shape[axis + 1 :] == targets.shape]
    return [axis for axis in fitting if outputs.shape[axis] > 1]
