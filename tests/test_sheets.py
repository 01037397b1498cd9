"""The one form in which a table is passed from the experiments to a page."""

import dataclasses

import pytest

from vbdrop.sheets import Sheet


def test_a_sheet_is_a_value():
    sheet = Sheet("LeNet", ("Method", "error %"), (("VBD", "1.74"),), (True,))
    assert sheet == Sheet("LeNet", ("Method", "error %"), (("VBD", "1.74"),), (True,))
    assert sheet != dataclasses.replace(sheet, ours=(False,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        sheet.title = "another"
