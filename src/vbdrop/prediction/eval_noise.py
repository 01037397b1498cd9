"""Noise in eval mode."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from vbdrop.layers import Variational


@contextmanager
def sampling(model: nn.Module) -> Iterator[nn.Module]:
    """Turn on noise in eval mode, inside a ``with`` block; dead weights and units add neither mean nor noise.

    Args:
        model: A converted model.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Rates(rate=0.5))
        >>> x = torch.ones(1, 4)
        >>> with vbdrop.sampling(model.eval()):
        ...     bool((model(x) == model(x)).all())
        False
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
    modules = [module for module in model.modules() if isinstance(module, Variational)]
    if not modules:
        raise ValueError("`model` has no converted layer, so it has no noise; call vbdrop.convert_(model, ...) first.")
    before = [module.sampling for module in modules]
    try:
        for module in modules:
            module.sampling = True
        yield model
    finally:
        for module, value in zip(modules, before, strict=True):
            module.sampling = value
