"""The verbs of the command line, each loaded when it is used: importing torch takes seconds, ``--help`` should not."""

import importlib
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

VERBS = {
    "demo": "See it work, in two minutes, on embedded digits.",
    "train": "Train a network with one of the methods.",
    "shrink": "Shrink your own model to a target size.",
    "compress": "Remove what a trained network does not need.",
    "report": "Write a page about runs, or the paper's tables.",
    "table": "Print a table of the paper beside ours; run it.",
    "queue": "Make the missing runs of all tables, in order.",
    "ablation": "Print the effect of one changed setting; run it.",
    "rerun": "Repeat a recorded run, and compare the bits.",
    "methods": "List the methods and their papers.",
    "data": "List the data sets, or fetch one.",
    "bench": "Measure the training step of each method.",
    "info": "Print what a bug report needs.",
}
"""Verb -> what it does, in one line. Each is the Typer application ``app`` in the file of that name."""


class _Verbs(TyperGroup):
    """Knows the verbs by name and summary, and loads the one that is called."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(**settings)
        for name in VERBS:  # Typer suggests from these when a verb is misspelt
            self.commands[name] = self.get_command(None, name)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 -- Typer does not export its context's base class
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return just enough of the verb to list it."""
        return TyperCommand(name=cmd_name, help=VERBS[cmd_name]) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        name, command, rest = super().resolve_command(ctx, args)
        if name in VERBS:
            command = typer.main.get_command(importlib.import_module(f"vbdrop.cli.{name}").app)
            command.name = name
        return name, command, rest


def _print_version(asked: bool) -> None:
    if asked:
        print(f"vbdrop {version('vbdrop')}")
        raise typer.Exit


app = typer.Typer(name="vbdrop", rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


@app.callback(cls=_Verbs, epilog="vbdrop VERB --help tells you more. Start with: vbdrop demo")
def vbdrop(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    _debug: Annotated[bool, typer.Option("--debug", help="After an error, show where it happened.")] = False,
) -> None:
    """Let a network learn its own dropout rates, then make it smaller."""


def group() -> Any:  # noqa: ANN401
    """Make the command that dispatches to the verbs.

    Example:
        >>> group().name
        'vbdrop'
    """
    return typer.main.get_command(app)
