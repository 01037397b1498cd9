"""BatchNorm statistics for a model that was trained with noise and is used without it."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from vbdrop._torch_compat import BatchNormNd, unwrapped
from vbdrop.convert.evaluating import evaluating
from vbdrop.convert.example_inputs import copied
from vbdrop.layers import Variational
from vbdrop.objective.checks import some

Batches: TypeAlias = Iterable[Tensor | tuple[Tensor, ...] | list[Tensor]]
"""Batches of inputs; if a batch is a tuple or list, its first element is the input."""

BATCH = 256
"""A tensor of inputs is split into equal batches of at most this size."""

_recalibrated = set[int]()
"""Fingerprints of the statistics that `recalibrate_` has computed in this process."""


@torch.no_grad()
def recalibrate_(model: nn.Module, batches: Batches) -> nn.Module:
    """Recompute the running statistics of every BatchNorm with the noise off, in place.

    In training, a BatchNorm after a noisy layer sees the variance of the noise; in eval mode that variance is gone, and
    statistics that still contain it shift the output.

    Args:
        model: A model with BatchNorm layers; without any, nothing happens.
        batches: Training inputs in batches drawn at random, as in training: the variance within each batch counts, so
            batches sorted by class would give variances that are too small. If a batch is a tuple or list, its first
            element is used, so a loader of pairs works.

    Returns:
        The same model, in its previous mode.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        >>> _ = recalibrate_(model, [torch.randn(64, 2)])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
    if isinstance(batches, Tensor):
        raise TypeError("`batches` must be an iterable of batches, such as a data loader; got one Tensor: write [x].")
    if not isinstance(batches, Iterable):
        raise TypeError(f"`batches` must be an iterable of batches, such as a data loader; got {batches!r}.")
    norms = list(_norms(model).values())
    if not norms:
        return model
    momenta = [norm.momentum for norm in norms]
    kept = [{name: value.clone() for name, value in norm.named_buffers(recurse=False)} for norm in norms]
    try:
        with evaluating(model):
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # a plain average over the batches
                norm.train()
            seen = 0
            for batch in batches:
                _run(model, batch)
                seen += 1
            if not seen:
                raise ValueError("`batches` must yield at least one batch; got none.")
    except BaseException:
        for norm, buffers in zip(norms, kept, strict=True):
            for name, value in buffers.items():
                getattr(norm, name).copy_(value)
        raise
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    _recalibrated.update(map(_fingerprint, norms))
    return model


def _run(model: nn.Module, batch: object) -> None:
    try:
        model(batch[0] if isinstance(batch, tuple | list) else batch)
    except Exception as error:  # a model may raise anything
        if isinstance(batch, Mapping):
            raise TypeError(
                f"`batches` must have the input as a tensor, or as the first element of a tuple or list; got a "
                f"{type(batch).__name__} with the keys {', '.join(map(repr, batch))}, which the model does not accept."
            ) from error
        raise


def without_noise(model: nn.Module, batches: Tensor | Batches | Literal[False] | None) -> nn.Module:
    """A model whose BatchNorm statistics contain no noise, for use in eval mode.

    Args:
        model: The model; it is not changed.
        batches: Training inputs with which a copy is recalibrated, as a tensor or in batches. None keeps the existing
            statistics, with a warning if they may contain noise; False keeps them without a warning.

    Returns:
        A recalibrated copy, or the model itself.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        >>> without_noise(model, None) is model, without_noise(model, torch.randn(64, 2)) is model
        (True, False)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
    model = unwrapped(model)
    if batches is None:
        if noisy := noisy_norms(model):
            warnings.warn(
                f"the BatchNorm statistics of {some(noisy)} were gathered in training, with the noise of the converted "
                "layers, and contain its variance, which is absent in eval mode. Pass training inputs as "
                "compress(..., recalibrate=batches), or call vbdrop.recalibrate_(model, batches) before you evaluate "
                "or compress the model; recalibrate=False keeps the statistics unchanged.",
                stacklevel=3,
            )
        return model
    if batches is False:
        return model
    if not isinstance(batches, Iterable):
        raise TypeError(
            "`recalibrate` must be a tensor of training inputs, an iterable of batches, False or None; got "
            f"{type(batches).__name__}."
        )
    return recalibrate_(copied(model), _equal_parts(batches) if isinstance(batches, Tensor) else batches)


def _equal_parts(x: Tensor) -> tuple[Tensor, ...]:
    """Batches whose sizes differ by one at most, since each has the same weight in the statistics."""
    return torch.tensor_split(x, max(1, -(-len(x) // BATCH)))


def noisy_norms(model: nn.Module) -> list[str]:
    """The BatchNorm layers of a converted model whose statistics have not been recalibrated since they were gathered.

    Recalibrated statistics are recognised by their values, even in a copy of the model or a reloaded state, but not if
    another process computed them.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        >>> _ = model(torch.randn(4, 2))
        >>> noisy_norms(model)
        []
    """
    if not any(isinstance(module, Variational) for module in model.modules()):
        return []
    return [
        name
        for name, norm in _norms(model).items()
        if norm.num_batches_tracked is not None and norm.num_batches_tracked > 0
        if _fingerprint(norm) not in _recalibrated
    ]


def _norms(model: nn.Module) -> dict[str, BatchNormNd]:
    """The BatchNorm layers that keep statistics."""
    return {n: m for n, m in model.named_modules() if isinstance(m, BatchNormNd) and m.running_mean is not None}


def _fingerprint(norm: BatchNormNd) -> int:
    statistics = [value for value in (norm.running_mean, norm.running_var) if value is not None]
    return hash(tuple(value.cpu().double().numpy().tobytes() for value in statistics))
