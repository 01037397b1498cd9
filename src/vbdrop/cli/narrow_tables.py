"""Wide tables on a narrow terminal: split between columns, so that nothing is cropped."""

from vbdrop.experiments.table_text import BESIDE
from vbdrop.sheets import Sheet

GAP = 3
"""The padding of a column, in characters."""


def fitted(sheet: Sheet, width: int) -> list[Sheet]:
    """Split a sheet into parts that fit, each with the first column; the columns of one figure stay together.

    Args:
        sheet: The sheet.
        width: The longest line, in characters.

    Example:
        >>> sheet = Sheet("", ("Method", "a" * 20, "paper", "b" * 20, "paper"), (), ())
        >>> [part.header[1][0] for part in fitted(sheet, 50)]
        ['a', 'b']
        >>> len(fitted(sheet, 100))
        1
    """
    widths = _widths(sheet)
    blocks: list[list[int]] = []
    for index, name in enumerate(sheet.header[1:], start=1):
        if name in BESIDE and blocks:
            blocks[-1].append(index)
        else:
            blocks.append([index])
    parts: list[list[int]] = []
    for block in blocks:
        if parts and widths[0] + sum(widths[index] for index in (*parts[-1], *block)) <= width:
            parts[-1] += block
        else:
            parts.append(list(block))
    return [_columns(sheet, [0, *part]) for part in parts] if len(parts) > 1 else [sheet]


def whole_width(sheet: Sheet) -> int:
    """Return the width at which no cell is broken, in characters.

    Example:
        >>> whole_width(Sheet("", ("Method", "paper"), (("VBD", "98.7-97.4-87.4"),), (True,)))
        26
    """
    return sum(_widths(sheet))


def _widths(sheet: Sheet) -> list[int]:
    return [max(map(len, column)) + GAP for column in zip(sheet.header, *sheet.rows, strict=True)]


def _columns(sheet: Sheet, chosen: list[int]) -> Sheet:
    header = tuple(sheet.header[index] for index in chosen)
    rows = tuple(tuple(row[index] for index in chosen) for row in sheet.rows)
    return Sheet(sheet.title, header, rows, sheet.ours)
