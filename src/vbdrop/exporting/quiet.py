"""Silences messages of torch's exporters about their own code."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppress torch's warnings and log lines about its own code; errors are still raised.

    Example:
        >>> with quiet_torch():
        ...     warnings.warn("torch uses a class that torch deprecates", FutureWarning)
    """
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
