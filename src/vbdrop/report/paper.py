"""The paper's tables beside ours, on one page."""

from collections.abc import Sequence
from dataclasses import dataclass

from vbdrop.report.template import fill
from vbdrop.sheets import Sheet


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        number: Its number.
        title: What it shows.
        sheets: Its rows, one sheet per network.
        notes: How the figures were made.
        commands: The commands that make the missing runs.
    """

    number: int
    title: str
    sheets: tuple[Sheet, ...]
    notes: tuple[str, ...]
    commands: tuple[str, ...]


def render_tables(tables: Sequence[PaperTable]) -> str:
    """Make the page of the tables.

    Args:
        tables: The tables, in order.

    Returns:
        Self-contained HTML.

    Example:
        >>> from vbdrop.sheets import Sheet
        >>> sheet = Sheet("LeNet", ("Method", "error %", "paper"), (("VBD", "1.74", "1.76"),), (True,))
        >>> page = render_tables([PaperTable(4, "Weights", (sheet,), (), ())])
        >>> "Table 4" in page and "1.74" in page
        True
    """
    return fill("tables.html", title="The paper's tables beside ours", tables=tables)
