"""Torch's exporters without what they say about themselves."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Keep back the warnings and log lines of torch about its own code; errors still come through.

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
