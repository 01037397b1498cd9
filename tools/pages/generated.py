"""The parts of pages that the project says itself: the help of the commands, and the tables of the records.

A page has a comment such as ``<!-- help: train -->`` or ``<!-- table: 4 -->`` where they belong.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

RECORDS = Path(__file__).resolve().parents[2] / "records"
WIDTH = 88

MARK = re.compile(r"^<!-- (help|table): ?([a-z0-9 ]*) -->$", re.MULTILINE)


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


def table_of(number: str, records: Path = RECORDS) -> str:
    """Return a table of the paper with our figures, in Markdown, from the records.

    Args:
        number: Of the table, 1 to 5.
        records: The folder of records.
    """
    from vbdrop.experiments import Book, markdown, protocol_of, table

    text = markdown(table(Book(protocol_of(int(number)), records)))
    return re.sub(r"^#", "##", text, flags=re.MULTILINE)


def filled(markdown: str) -> str:
    """Fill in the marked parts of a page.

    Args:
        markdown: The page.
    """

    def part(found: re.Match[str]) -> str:
        if found[1] == "table":
            return table_of(found[2])
        return f"```text\n$ {' '.join(['vbdrop', *found[2].split()])} --help\n{help_of(found[2])}\n```"

    return MARK.sub(part, markdown)


def on_page_markdown(markdown: str, config: MkDocsConfig, **kwargs: object) -> str:
    """Fill in a page; called by MkDocs."""
    return filled(markdown)
