"""Silences messages of torch's exporters about their own code."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO

LOGGERS = ("torch.onnx", "onnxscript")
"""The loggers of torch's exporters; onnxscript reports constants that it could not fold as warnings."""


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppress torch's warnings and log lines about its own code, and its graphs on stderr; errors are still raised.

    Example:
        >>> with quiet_torch():
        ...     warnings.warn("torch uses a class that torch deprecates", FutureWarning)
    """
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
