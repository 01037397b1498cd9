"""BatchNorm statistics for a model that was trained with noise and is used without it."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

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


def recalibrate_(model: nn.Module, batches: Batches) -> nn.Module:
    """Recompute the running statistics of every BatchNorm with the noise off, in place.

    In training, a BatchNorm after a noisy layer sees the variance of the noise; in eval mode that variance is gone, and
    statistics that still contain it shift the output.

    A BatchNorm that no batch reaches keeps its statistics, with a warning.

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
    return recalibrate_by_(model, batches, _run, stacklevel=3)


def recalibrate_by_(
    model: nn.Module, batches: Iterable[Any], run: Callable[[nn.Module, Any], object], *, stacklevel: int
) -> nn.Module:
    """`recalibrate_` with batches of any kind.

    Args:
        model: The model.
        batches: The batches.
        run: Runs the model on a batch.
        stacklevel: That of the warning, as in `warnings.warn`.

    Returns:
        The same model.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(1))
        >>> batches = [{"x": torch.tensor([[1.0], [3.0]])}]
        >>> recalibrate_by_(model, batches, lambda model, batch: model(batch["x"]), stacklevel=2)[0].running_mean
        tensor([2.])
    """
    if missed := _recompute_(model, batches, run):
        warnings.warn(
            f"no batch reached the BatchNorm layers {some(missed)}, which keep the statistics that they had. "
            "Recalibrate with batches that run through them, unless the model does not use them in eval mode.",
            stacklevel=stacklevel,
        )
    return model


@torch.no_grad()
def _recompute_(model: nn.Module, batches: Iterable[Any], run: Callable[[nn.Module, Any], object]) -> list[str]:
    """Recompute the statistics; the names of the norms that no batch reached, which are as before."""
    norms = _norms(model)
    if not norms:
        return []
    momenta = [norm.momentum for norm in norms.values()]
    kept = {
        name: {key: value.clone() for key, value in norm.named_buffers(recurse=False)} for name, norm in norms.items()
    }
    try:
        with evaluating(model):
            for norm in norms.values():
                norm.reset_running_stats()
                norm.momentum = None  # a plain average over the batches
                norm.train()
            seen = 0
            for batch in batches:
                run(model, batch)
                seen += 1
            if not seen:
                raise ValueError("`batches` must yield at least one batch; got none.")
    except BaseException:
        for name, norm in norms.items():
            _restore_(norm, kept[name])
        raise
    finally:
        for norm, momentum in zip(norms.values(), momenta, strict=True):
            norm.momentum = momentum
    missed = [name for name, norm in norms.items() if _is_reset(norm)]
    for name in missed:
        _restore_(norms[name], kept[name])
    _recalibrated.update(_fingerprint(norm) for name, norm in norms.items() if name not in missed)
    return missed


def _is_reset(norm: BatchNormNd) -> bool:
    """Whether the statistics are those of a norm that has seen nothing; some classes do not count their batches."""
    if norm.num_batches_tracked is not None and norm.num_batches_tracked > 0:
        return False
    is_zero = norm.running_mean is None or not norm.running_mean.any()
    return is_zero and (norm.running_var is None or bool((norm.running_var == 1).all()))


def _restore_(norm: BatchNormNd, buffers: Mapping[str, Tensor]) -> None:
    for name, value in buffers.items():
        norm.get_buffer(name).copy_(value)


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
    parts = _equal_parts(batches) if isinstance(batches, Tensor) else batches
    return recalibrate_by_(copied(model), parts, _run, stacklevel=4)


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
