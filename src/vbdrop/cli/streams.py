"""Standard output and error in every state: a terminal without Unicode, a closed pipe, or nothing at all."""

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
"""Replacements for characters that an encoding lacks; all others become a question mark."""

HANDLER = "vbdrop.plain"


def _in_plain_letters(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def prepare() -> None:
    """Make any text writable to standard output and error, whatever their encoding; discard it if one is missing.

    Example:
        >>> "3 ± 1 – ü".encode("ascii", HANDLER)
        b'3 +- 1 - ?'
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 -- open as long as the process
        elif isinstance(stream, io.TextIOWrapper) and _refuses_letters(stream):
            stream.reconfigure(errors=HANDLER)


def _refuses_letters(stream: io.TextIOWrapper) -> bool:
    """Whether some text raises an error, as in the POSIX locale, where only odd file names pass."""
    unicode = codecs.lookup(stream.encoding).name.startswith("utf")
    return stream.errors == "strict" or (stream.errors == "surrogateescape" and not unicode)


def abandon(stream: TextIO) -> None:
    """Discard what is still to be written, so that Python does not complain about it on exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


codecs.register_error(HANDLER, _in_plain_letters)
