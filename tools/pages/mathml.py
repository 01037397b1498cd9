"""Converts formulas to MathML when the site is built, so that pages need no script and no font for them.

In a page, a formula in the text is written ``$`a`$`` and one on its own lines as a fenced block ``math``, as on GitHub.
"""

import latex2mathml.converter
import markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from mkdocs.config.defaults import MkDocsConfig

INLINE = r"\$`([^`]+)`\$"
BEFORE_CODE = 195  # Markdown's own pattern for backticks has 190


def mathml(latex: str, display: str = "inline") -> str:
    """Turn a formula into MathML.

    Args:
        latex: The formula, without dollars.
        display: ``"inline"``, or ``"block"`` for a line of its own.
    """
    spelled = latex.replace(r"\sim", "∼")  # latex2mathml takes this command for an accent
    return latex2mathml.converter.convert(spelled.strip(), display=display)


def fenced(source: str, language: str, css_class: str, options: object, md: object, **kwargs: object) -> str:
    """Turn a fenced block ``math`` into a formula on its own line; called by pymdownx.superfences."""
    return f'<div class="formula">{mathml(source, "block")}</div>'


class _Formula(InlineProcessor):
    def handleMatch(self, m: object, data: str) -> tuple[str, int, int]:  # noqa: N802 -- Markdown's name for it
        return self.md.htmlStash.store(mathml(m.group(1))), m.start(0), m.end(0)


class Formulas(Extension):
    """Adds formulas in the text to Markdown."""

    def extendMarkdown(self, md: markdown.Markdown) -> None:  # noqa: N802 -- Markdown's name for it
        """Look for formulas before code is looked for."""
        md.inlinePatterns.register(_Formula(INLINE, md), "formula", BEFORE_CODE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add formulas to the Markdown of all pages; called by MkDocs."""
    config.markdown_extensions.append(Formulas())
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "math", "class": "formula", "format": fenced}]
    }
    return config
