"""Language models that return a key-value cache for the next call, which a graph cannot represent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def without_cache(model: nn.Module) -> Iterator[nn.Module]:
    """Make a Hugging Face model return no key-value cache inside a ``with`` block, unless a caller asks for one.

    The cache is an object that can be neither traced nor compared. All other outputs are the same without it.

    Args:
        model: Any model; those without ``config.use_cache`` are left alone.

    Example:
        >>> from types import SimpleNamespace
        >>> model = nn.Linear(2, 2)
        >>> model.config = SimpleNamespace(use_cache=True)
        >>> with without_cache(model):
        ...     model.config.use_cache
        False
        >>> model.config.use_cache
        True
    """
    configs = drop_cache_(model)
    try:
        yield model
    finally:
        for config in configs:
            config.use_cache = True


def drop_cache_(model: nn.Module) -> list[Any]:
    """Make a Hugging Face model return no key-value cache unless a caller asks for one.

    Returns:
        The configurations that were changed.
    """
    found = {
        id(config): config for module in model.modules() if (config := getattr(module, "config", None)) is not None
    }
    configs = [config for config in found.values() if getattr(config, "use_cache", False) is True]
    for config in configs:
        config.use_cache = False
    return configs
