"""Imports a package that only one integration needs; if it is missing, the error says how to install it."""

import importlib
from typing import Any


def imported(module: str, extra: str) -> Any:  # noqa: ANN401 -- a module, whose names no type checker can know
    """Import a module of an optional package, or raise an error with the line that installs it.

    Args:
        module: The module's full name.
        extra: The extra of vbdrop that installs its package.

    Raises:
        ImportError: If the package, or something that it needs, is not installed.

    Example:
        >>> imported("json.decoder", "lightning").__name__
        'json.decoder'
        >>> imported("no_such_module.pytorch", "lightning")
        Traceback (most recent call last):
        ImportError: vbdrop.integrations.lightning needs no_such_module: pip install 'vbdrop[lightning]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise ImportError(f"vbdrop.integrations.{extra} needs {package}: pip install 'vbdrop[{extra}]'") from error
