"""The exceptions for data files."""

import importlib
from types import ModuleType


class DataError(Exception):
    """A data set is missing, damaged or not the published one, or could not be fetched or stored.

    Example:
        >>> raise DataError("the disk is full")
        Traceback (most recent call last):
        vbdrop.data.errors.DataError: the disk is full
    """


class FetchError(DataError):
    """One source of a data set failed; another may still have it.

    Example:
        >>> issubclass(FetchError, DataError)
        True
    """


def needed(module: str, purpose: str) -> ModuleType:
    """Import an optional module, or raise an error with the line that installs it.

    Example:
        >>> needed("json", "reading labels").__name__
        'json'
        >>> needed("no_such_module", "reading PNG files")
        Traceback (most recent call last):
        vbdrop.data.errors.DataError: reading PNG files needs no_such_module: pip install 'vbdrop[data]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise DataError(f"{purpose} needs {package}: pip install 'vbdrop[data]'") from error
