"""Temporary eval mode."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Eval mode inside a ``with`` block; afterwards every module returns to its previous mode.

    Args:
        model: Any model.

    Example:
        >>> model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
        >>> with evaluating(model):
        ...     [module.training for module in model]
        [False, False]
        >>> [module.training for module in model]
        [True, False]
    """
    before = [(module, module.training) for module in model.modules()]
    try:
        yield model.eval()
    finally:
        for module, training in before:
            module.training = training
