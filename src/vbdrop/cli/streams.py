"""Standard output and error as they may be: a terminal without Unicode, a pipe that was closed, or nothing at all."""

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

PLAIN = {
    "–": "-", "−": "-", "·": "-", "…": "...", "×": "x", "±": "+-", "→": "->", "≥": ">=", "≤": "<=", "α": "alpha",
    "σ": "sigma", "μ": "u", "µ": "u", "█": "#", "━": "-", "╸": "-", "╺": "-", "─": "-", "│": "|", "’": "'",
}  # fmt: skip
"""What stands for a letter in an encoding that does not have it; a question mark stands for the others."""

HANDLER = "vbdrop.plain"


def _in_plain_letters(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def prepare() -> None:
    """Make every text writable to standard output and error, whatever their encoding; where one is missing, to nothing.

    Example:
        >>> "3 ± 1 – ü".encode("ascii", HANDLER)
        b'3 +- 1 - ?'
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 -- open as long as the process
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=HANDLER)


def abandon(stream: TextIO) -> None:
    """Send what is still to be written to nowhere, so that Python does not complain about it when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


codecs.register_error(HANDLER, _in_plain_letters)
