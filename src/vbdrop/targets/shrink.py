"""`shrink`: one call from a model and its data to the small model."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Adam, Optimizer

from vbdrop.layers import Units, Weights
from vbdrop.layers.modes import Mode
from vbdrop.targets.batches import Batches, Split
from vbdrop.targets.losses import Loss, default_loss
from vbdrop.targets.progress import Progress, ProgressLine
from vbdrop.targets.shrink_result import ShrinkResult
from vbdrop.targets.shrink_run import ShrinkRun
from vbdrop.targets.target import Target

GATE_LOG_SIGMA2 = -3.0
"""The initial log variance of the gates: a short run has no time to raise it from almost nothing."""

LARGEST_SEED = 2**43
"""The largest absolute value: the seed of an epoch is about a million times this, and must fit into 64 bits."""


def shrink(
    model: nn.Module,
    train: Any,  # noqa: ANN401 -- any form of data
    *,
    target: Target,
    epochs: int,
    valid: Any = None,  # noqa: ANN401
    loss: Loss = default_loss,
    lr: float = 1e-3,
    batch_size: int = 100,
    modes: Mode | tuple[Mode, ...] | None = None,
    optimizer: Callable[[list[dict[str, Any]]], Optimizer] = Adam,
    split: Split | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    shrink_every: int | None = None,
    progress: bool | Progress = False,
) -> ShrinkResult:
    """Shrink a model to a target: train it, put it under pressure, cut it, refine it, and compress it.

    A share of the epochs trains the plain network (``target.train``; 0 if it is already trained). Then its weights or
    channels get learned noise, and what the network needs least is removed step by step. The last share of the epochs
    (``target.refine``) trains what is left. For your own loop, use `convert_`, `ELBO`, `Target` and `compress`.

    Args:
        model: The model, trained or not, on its device; it is not changed. Of a compiled model, the original is taken.
        train: A `torch.utils.data.DataLoader`, a data set, or a tuple or dict of tensors or arrays. The last element
            of a tuple is the targets; in a dict they are under ``labels``, ``label``, ``targets``, ``target`` or ``y``.
        target: The size to reach. Its ``steps``, ``epochs`` and ``example_inputs`` are not used.
        epochs: The number of epochs of the whole run.
        valid: Validation data, in the same forms, for the reported errors. ``Target(within=...)`` needs it, unless it
            has its own ``evaluate``.
        loss: ``loss(outputs, targets)``, the mean over a batch; by default the cross-entropy for classes and the mean
            squared error for numbers.
        lr: The learning rate of the weights.
        batch_size: The examples in a batch, for data that does not come in batches.
        modes: What becomes noisy; by default `Weights` for targets in weights or bytes, and `Units` for the others.
        optimizer: Makes the optimizer from a list of parameter groups.
        split: Splits a batch into (inputs, targets), if the default does not fit.
        seed: The seed of the data order and of the noise.
        checkpoint: A file to which the run is saved after every epoch. Called again with the same arguments, a run that
            was killed resumes from it and ends with the same bits. The file of a run with a different target, model,
            modes or numbers is refused. Not compared are the values of the data, ``loss``, ``optimizer``, ``split``,
            the code of functions and, if ``target.train`` is above 0, the initial weights.
        shrink_every: How often, in epochs, removed elements are taken out of the model, which makes training cheaper;
            None to take them out only at the end.
        progress: Whether to write one line per epoch, or a function that is called with each epoch's point.

    Returns:
        The small model with its plan and summary, the errors, and the curve of the run.

    Raises:
        ValueError: The target cannot be reached, or an argument does not fit; before anything is trained.

    Example:
        >>> import torch, vbdrop
        >>> x = torch.randn(200, 8)
        >>> y = (x[:, 0] > 0).long()
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> result = vbdrop.shrink(model, (x, y), target=vbdrop.Target(weights=4), epochs=10, lr=0.01)
        >>> result.size <= 160 / 4
        True
    """
    _check(model, target, epochs, lr, batch_size, shrink_every, valid)
    _check_functions(loss, optimizer, split, progress)
    if type(seed) is not int or abs(seed) > LARGEST_SEED:
        raise ValueError(f"`seed` must be an int, at most 2**43 in absolute value; got {seed!r}.")
    if checkpoint is not None and not isinstance(checkpoint, str | Path):
        raise TypeError(f"`checkpoint` must be the path of a file, or None; got {checkpoint!r}.")
    model = _uncompiled(model)
    data = Batches(train, "train", model, batch_size=batch_size, shuffle=True, split=split)
    validation = None if valid is None else Batches(valid, "valid", model, batch_size=500, split=split)
    chosen = default_modes(target) if modes is None else modes if isinstance(modes, tuple) else (modes,)
    run = ShrinkRun(
        model, data, validation, target, epochs,
        loss=loss, lr=lr, modes=chosen, optimizer=optimizer, seed=seed,
        checkpoint=None if checkpoint is None else Path(checkpoint), shrink_every=shrink_every,
    )  # fmt: skip
    return run.finish(ProgressLine(run.pursued) if progress is True else progress if callable(progress) else None)


def _uncompiled(model: nn.Module) -> nn.Module:
    """The model that was given to `torch.compile`, or the model itself."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def _check(
    model: object, target: object, epochs: object, lr: object, batch_size: object, shrink_every: object, valid: object
) -> None:
    """Refuse invalid arguments, by name."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
    if not isinstance(target, Target):
        raise TypeError(f"`target` must be a vbdrop.Target, such as Target(macs=5); got {target!r}.")
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise ValueError(f"`epochs` must be a number of epochs, an int >= 1; got {epochs!r}.")
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not 0 < lr < math.inf:
        raise ValueError(f"`lr` must be a learning rate above 0; got {lr!r}.")
    if type(batch_size) is not int or batch_size < 1:
        raise ValueError(f"`batch_size` must be an int >= 1; got {batch_size!r}.")
    if shrink_every is not None and (type(shrink_every) is not int or shrink_every < 1):
        raise ValueError(f"`shrink_every` must be a number of epochs, an int >= 1, or None; got {shrink_every!r}.")
    if target.within is not None and target.evaluate is None and valid is None:
        raise ValueError("`target` with `within` needs validation data: pass valid=, or evaluate= of the Target.")


def _check_functions(loss: object, optimizer: object, split: object, progress: object) -> None:
    """Refuse what is not a function."""
    if not callable(loss):
        raise TypeError(f"`loss` must be a function (outputs, targets) -> mean loss; got {loss!r}.")
    if not callable(optimizer):
        raise TypeError(f"`optimizer` must be a class or function of a list of parameter groups; got {optimizer!r}.")
    if split is not None and not callable(split):
        raise TypeError(f"`split` must be a function (batch) -> (inputs, targets), or None; got {split!r}.")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(f"`progress` must be True, False or a function (point, epochs); got {progress!r}.")


def default_modes(target: Target) -> tuple[Mode, ...]:
    """What becomes noisy for a target: single weights if they count, whole units if only those do.

    Example:
        >>> [type(mode).__name__ for mode in default_modes(Target(macs=2))]
        ['Units']
    """
    if target.measured in ("weights", "bytes"):
        return (Weights(filter_fn=target.only),)
    return (Units(log_sigma2=GATE_LOG_SIGMA2, filter_fn=target.only),)
