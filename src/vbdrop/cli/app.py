"""The program ``vbdrop``: runs a verb, and reports an error in one line.

Exit codes: 0 for success, 1 if something failed, 2 if the command line was wrong, 130 after Ctrl-C.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from vbdrop.cli.streams import abandon, prepare

FAILED, STOPPED = 1, 130

EXTRAS = {
    **dict.fromkeys(("typer", "rich"), "the command line needs typer and rich: pip install 'vbdrop[cli]'"),
    **dict.fromkeys(("matplotlib", "jinja2"), "the report needs matplotlib and jinja2: pip install 'vbdrop[report]'"),
}
"""A package that may be missing -> what needs it, and the line that installs it."""


class MissingExtraError(Exception):
    """A package that only the command line needs is not installed.

    Example:
        >>> raise MissingExtraError("pip install 'vbdrop[cli]'")
        Traceback (most recent call last):
        vbdrop.cli.app.MissingExtraError: pip install 'vbdrop[cli]'
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Args:
        arguments: The command line; by default that of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    prepare()
    try:
        code = _run([argument for argument in given if argument != "--debug"] or ["--help"])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = STOPPED
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        abandon(sys.stdout)
        code = FAILED
    except Exception as error:
        if debug:
            raise
        code = getattr(error, "exit_code", FAILED)
        if isinstance(error, OSError):  # the disk that the output goes to may be full
            abandon(sys.stdout)
        with suppress(OSError):  # the same for standard error
            print(_line(error), file=sys.stderr)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        from vbdrop.cli.verbs import group

        result = group().main(arguments, prog_name="vbdrop", standalone_mode=False)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise MissingExtraError(EXTRAS[error.name]) from error
    return result if isinstance(result, int) else 0


def _line(error: Exception) -> str:
    """Describe the error in one line; a mistake on the command line also points to the help."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "vbdrop"
    formatted = getattr(error, "format_message", None)
    if formatted is not None:
        options = [] if context is None else context.command.params
        return f"{command}: {_one_line(_by_option(formatted(), options))} (try {command} --help)"
    text = _one_line(str(error))
    if not isinstance(error, ValueError | OSError) and not type(error).__module__.startswith("vbdrop."):
        text = f"{type(error).__name__}: {text}".rstrip(": ") + " (--debug shows where)"
    return f"{command}: {text}"


def _by_option(message: str, options: Sequence[Any]) -> str:
    """Name options as one types them: `--shrink-every`, where Python has `shrink_every`."""
    for option in options:
        if option.opts[0].startswith("--"):
            message = message.replace(f"`{option.name}` must ", f"`{option.opts[0]}` must ")
    return message


def _one_line(text: str) -> str:
    return " ".join(text.split())
