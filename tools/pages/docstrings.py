"""Converts the Sphinx markup in our docstrings to Markdown with formulas, for the site."""

import re

import griffe

ROLES = re.compile(r":(?:class|data|func|meth|mod):`~?\.?([^`]+)`")
FORMULA = re.compile(r":math:`([^`]+)`")
EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
CODE = re.compile(r"(?<!`)``([^`]+)``(?!`)")
BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +\S.*|[ ]*(?=\n\1 +\S)))*)", re.MULTILINE)


def as_markdown(docstring: str) -> str:
    """Convert the Sphinx markup in a docstring.

    Args:
        docstring: The text, without its quotes.
    """
    text = EXAMPLE.sub(r"\1Examples:", BLOCK.sub(_block, docstring))  # griffe only knows the plural
    text = FORMULA.sub(lambda found: f"$`{' '.join(found[1].split())}`$", text)
    return CODE.sub(r"`\1`", ROLES.sub(r"`\1`", text))


def _block(found: re.Match[str]) -> str:
    indent, formula = found[1], filter(None, map(str.strip, found[2].splitlines()))
    return "\n".join(f"{indent}{line}" for line in ("```math", *formula, "```"))


class Markdown(griffe.Extension):
    """Rewrites every docstring that the site reads."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Called by griffe with every object that it loads."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
