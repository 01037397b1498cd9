"""Generates parts of pages: the help of the commands, and the contents of the records.

A page has a comment such as ``<!-- help: train -->`` or ``<!-- table: 4 -->`` where they belong.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.config.defaults import MkDocsConfig

if TYPE_CHECKING:
    from vbdrop.experiments import Protocol

PROJECT = Path(__file__).resolve().parents[2]
RECORDS = PROJECT / "records"
if str(PROJECT) not in sys.path:
    sys.path.append(str(PROJECT))  # MkDocs loads this file by its path, but it imports others of the project
WIDTH = 88

MARK = re.compile(r"^<!-- ([a-z]+)(?:: ?([a-z0-9 -]*?))? -->$", re.MULTILINE)


def help_of(words: str) -> str:
    """Return what ``vbdrop WORDS --help`` prints.

    Args:
        words: A verb, such as ``train`` or ``data get``; empty for the program itself.
    """
    from vbdrop.cli.verbs import group

    command, name, rest = group(), "vbdrop", words.split()
    settings = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    context = command.make_context(name, [], resilient_parsing=True, **settings)
    while rest:
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, [], parent=context, resilient_parsing=True, **settings)
    return command.get_help(context)


def table_of(protocol: "Protocol", records: Path) -> str:
    """Return a table with our figures, in Markdown, from the records.

    Args:
        protocol: The table.
        records: The folder of records.
    """
    from vbdrop.experiments import Book, markdown, table

    return re.sub(r"^#", "##", markdown(table(Book(protocol, records)), commands=False), flags=re.MULTILINE)


def _help(words: str, records: Path) -> str:
    return f"```text\n$ {' '.join(['vbdrop', *words.split()])} --help\n{help_of(words)}\n```"


def _table(number: str, records: Path) -> str:
    from vbdrop.experiments import protocol_of

    return table_of(protocol_of(int(number)), records)


def _ablations(_: str, records: Path) -> str:
    from vbdrop.experiments import ablations

    return table_of(ablations(), records)


def _frontier(which: str, records: Path) -> str:
    from tools.pages.frontier import frontier_of

    number, column = which.split()
    return frontier_of(int(number), column, records)


def _findings(_: str, records: Path) -> str:
    from tools.pages.findings import findings

    return findings(records)


def _missing(_: str, records: Path) -> str:
    from tools.pages.findings import missing

    return missing(records)


def _status(_: str, records: Path) -> str:
    from tools.pages.findings import status

    return status(records)


def _verdicts(_: str, records: Path) -> str:
    from tools.pages.verdicts import verdicts_of

    return verdicts_of(records)


def _short(_: str, records: Path) -> str:
    from tools.pages.verdicts import in_short

    return in_short(records)


PARTS: dict[str, Callable[[str, Path], str]] = {
    "help": _help,
    "table": _table,
    "ablations": _ablations,
    "frontier": _frontier,
    "findings": _findings,
    "missing": _missing,
    "status": _status,
    "verdicts": _verdicts,
    "short": _short,
}
"""The word in a mark -> a function that makes the part from the rest of the mark and the folder of records."""


def filled(markdown: str, records: Path = RECORDS) -> str:
    """Fill in the marked parts of a page.

    Args:
        markdown: The page.
        records: The folder of records.
    """

    def part(found: re.Match[str]) -> str:
        make = PARTS.get(found[1])
        return found[0] if make is None else make(found[2] or "", records)

    return MARK.sub(part, markdown)


def on_page_markdown(markdown: str, config: MkDocsConfig, **kwargs: object) -> str:
    """Fill in a page; called by MkDocs."""
    return filled(markdown)
