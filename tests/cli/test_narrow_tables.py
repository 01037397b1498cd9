"""A wide sheet on a narrow terminal."""

from pathlib import Path

import pytest

from vbdrop.cli.narrow_tables import fitted
from vbdrop.experiments import Book, layout, protocol_of, table


@pytest.mark.parametrize("width", [60, 80, 120, 300])
@pytest.mark.parametrize("number", [1, 4])
def test_nothing_is_lost_and_every_part_fits(number, width):
    for sheet in layout(table(Book(protocol_of(number), Path("none")))):
        whole = sum(max(map(len, column)) + 3 for column in zip(sheet.header, *sheet.rows, strict=True))
        parts = fitted(sheet, width)
        assert (len(parts) == 1) == (whole <= width)
        assert sheet.header == (sheet.header[0], *(name for part in parts for name in part.header[1:]))
        for part in parts:
            assert part.header[1] != "paper"
            assert [row[0] for row in part.rows] == [row[0] for row in sheet.rows]
            widths = [max(map(len, column)) + 3 for column in zip(part.header, *part.rows, strict=True)]
            assert sum(widths) <= width
