"""``vbdrop methods``: every method, its paper and its settings."""

import dataclasses
import re
import sys
from typing import Annotated, Any

import typer
from rich.text import Text

from vbdrop.cli.console import grid, out, print_json, usage, verb
from vbdrop.cli.options import AsJson
from vbdrop.cli.plain_math import plain_math
from vbdrop.methods import METHODS, method_named
from vbdrop.train import Method

app = verb()

MATH = ".. math::"

FAMILIES = {
    "regulariser": "For a lower error",
    "weights": "For fewer weights",
    "structured": "For fewer units",
}


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this method, in detail.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, their papers and their settings.

    The last column shows the settings that the tables choose on validation data; NAME shows the values that they try.
    """
    if name is not None:
        with usage():
            chosen = method_named(name)
        _one(chosen, as_json)
    elif as_json:
        print_json([_as_dict(method) for method in METHODS.values()])
    else:
        _all()


def _all() -> None:
    console = out()
    for family, title in FAMILIES.items():
        rows = [
            (Text(method.name, style="bold"), method.title, method.paper, ", ".join(method.knobs))
            for method in METHODS.values()
            if method.family == family
        ]
        console.print(grid(("method", "in the tables", "paper", "chosen on validation"), rows, left=4, title=title))
    console.print("vbdrop methods NAME says more about one of them.", style="dim")


def _one(method: type[Method], as_json: bool) -> None:
    if as_json:
        print_json(_as_dict(method))
        return
    console = out()
    console.print(Text.assemble((method.name, "bold"), f"  {method.title}. {method.paper}"))
    console.print(Text(_readable(sys.modules[method.__module__].__doc__ or "")))
    rows = [
        (field.name, str(field.default), " ".join(map(str, method.knobs.get(field.name, ()))))
        for field in dataclasses.fields(method)
    ]
    if rows:
        console.print(grid(("setting", "default", "tried on validation"), rows))


def _readable(docstring: str) -> str:
    """Return a module's docstring in plain text, one line per paragraph, so that the terminal wraps it."""
    plain = re.sub(r":math:`([^`]*)`", lambda found: plain_math(found[1]), docstring.strip())
    plain = plain.replace("``", "`").replace("**", "")
    return "\n\n".join(map(_paragraph, plain.split("\n\n")))


def _paragraph(text: str) -> str:
    if text.startswith(MATH):
        return f"    {plain_math(text.removeprefix(MATH))}"
    return text if text.startswith((" ", "*")) else text.replace("\n", " ")


def _as_dict(method: type[Method]) -> dict[str, Any]:
    return {
        "name": method.name,
        "title": method.title,
        "paper": method.paper,
        "family": method.family,
        "version": method.version,
        "settings": {field.name: field.default for field in dataclasses.fields(method)},
        "knobs": {name: list(values) for name, values in method.knobs.items()},
    }
