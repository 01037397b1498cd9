"""The errors of an export."""

from collections.abc import Iterator
from contextlib import contextmanager


class ExportError(RuntimeError):
    """The model could not be exported, or the exported file does not agree with it; no file is left behind."""


@contextmanager
def telling(failure: str) -> Iterator[None]:
    """Turn any exception raised inside into an `ExportError`: the failure and the reason, in one line.

    Example:
        >>> with telling("net.onnx cannot be run"):
        ...     raise RuntimeError("no half precision")
        Traceback (most recent call last):
        ...
        vbdrop.exporting.errors.ExportError: net.onnx cannot be run: no half precision
    """
    try:
        yield
    except Exception as error:  # a model or a runtime can raise anything
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ExportError(f"{failure}: {reason}") from error
