"""A table as text: what the command line prints, the records keep and the report page shows. Needs no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sheet:
    """Rows of text under a header.

    Attributes:
        title: What they show.
        header: The names of the columns.
        rows: The rows.
        ours: Which rows belong to the paper's own method.

    Example:
        >>> Sheet("LeNet", ("Method", "error %"), (("VBD", "1.74"),), (True,)).rows[0][1]
        '1.74'
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    ours: tuple[bool, ...]
