"""A wide sheet on a narrow terminal."""

from pathlib import Path

import pytest

from vbdrop.cli.narrow_tables import fitted, whole_width
from vbdrop.experiments import Book, layout, protocol_of, table
from vbdrop.sheets import Sheet


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


def test_a_figure_that_does_not_fit_has_a_width_at_which_it_is_not_broken():
    sheet = Sheet("", ("Method", "zeros %", "paper"), (("VBD", "59.2-97.7-99.8-94.1", "67-98-99.8-95"),), (True,))
    assert fitted(sheet, 30) == [sheet]
    assert whole_width(sheet) == 6 + 19 + 13 + 3 * 3
