"""BatchNorm statistics for a model that was trained with noise and is used without."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vbdrop.convert.evaluating import evaluating


@torch.no_grad()
def recalibrate_(model: nn.Module, batches: Iterable[Tensor | tuple[Tensor, ...] | list[Tensor]]) -> nn.Module:
    """Compute the running statistics of every BatchNorm again, with the noise off, in place.

    In training a BatchNorm behind a noisy layer sees the noise's variance; in eval mode that variance is gone, and
    statistics that still hold it shift the output.

    Args:
        model: A model with BatchNorm layers; without any, nothing happens.
        batches: Training inputs; of a tuple or list, the first element is the input (so a data loader of pairs works).

    Returns:
        The same model, in the mode that it had.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        >>> _ = recalibrate_(model, [torch.randn(64, 2)])
    """
    if isinstance(batches, Tensor):
        raise TypeError("`batches` must be an iterable of batches, such as a data loader; got one Tensor: write [x].")
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
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
                model(batch[0] if isinstance(batch, tuple | list) else batch)
                seen += 1
            if not seen:
                raise ValueError("`batches` must give at least one batch; it gave none.")
    except BaseException:
        for norm, buffers in zip(norms, kept, strict=True):
            for name, value in buffers.items():
                getattr(norm, name).copy_(value)
        raise
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    return model
