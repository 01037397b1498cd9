"""What the verbs share: where they write, how they read settings, and how they report a wrong command line."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

FILE_WIDTH = 160
MIN_WIDTH = 60
"""In a narrower terminal, the terminal wraps the lines itself: a table would lose whole columns."""


def out(least: int = MIN_WIDTH) -> Console:
    """Return the console for results; in a file, tables may be wider than in a terminal.

    Args:
        least: The least width, in characters: a number broken over two lines would read as two numbers.

    Example:
        >>> out().stderr
        False
    """
    in_file = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return _console(width=FILE_WIDTH if in_file else max(least, Console().width))


def err() -> Console:
    """Return the console for progress and remarks, so that results can be redirected.

    Example:
        >>> err().stderr
        True
    """
    return _console(stderr=True)


def _console(**settings: Any) -> Console:  # noqa: ANN401 -- whatever a console takes
    """A console that prints text as it is: brackets in paths and in ``pip install 'vbdrop[cli]'`` are not markup."""
    return Console(highlight=False, markup=False, emoji=False, **settings)


def print_json(value: object) -> None:
    """Print a value as JSON, and nothing else.

    Example:
        >>> print_json({"error": 1.5})
        {
          "error": 1.5
        }
    """
    print(json.dumps(value, indent=2, allow_nan=False))


def grid(
    header: Sequence[str], rows: Iterable[Sequence[str | Text]], *, left: int = 1, title: str | None = None
) -> Table:
    """Lay out rows of text: the first columns to the left, numbers to the right.

    Example:
        >>> grid(("layer", "weights"), [("fc1", "235,200")]).row_count
        1
    """
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index < left else "right", overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def usage(**renamed: str) -> Iterator[None]:
    """Report a wrong value as a mistake on the command line.

    Args:
        renamed: An argument in Python -> the parameter of the command, where that has another name.

    Example:
        >>> with usage(n_valid="valid"):
        ...     raise ValueError("`n_valid` must be an int >= 0; got -1.")
        Traceback (most recent call last):
        typer...BadParameter: `valid` must be an int >= 0; got -1.
    """
    try:
        yield
    except ValueError as error:
        message = str(error)
        for argument, parameter in renamed.items():
            message = message.replace(f"`{argument}`", f"`{parameter}`")
        raise typer.BadParameter(message) from error


PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read settings from the command line: ``name=value``, each value a number, true, false, null or a word.

    True, False and None work, too.

    Example:
        >>> settings(["kl_weight=0.5", "per=unit", "rounds=3"])
        {'kl_weight': 0.5, 'per': 'unit', 'rounds': 3}
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"a setting must be name=value; got {pair!r}.")
        try:
            found[name] = json.loads(PYTHON_WORDS.get(value, value))
        except ValueError:
            found[name] = value
    return found


def verb() -> typer.Typer:
    """Make the application of a verb; errors and their display are left to :func:`vbdrop.cli.app.main`.

    Example:
        >>> verb().registered_commands
        []
    """
    return typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
