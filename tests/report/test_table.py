"""The table of sections."""

import pytest

from vbdrop.report.table import SECTIONS


def test_every_section_has_its_own_anchor():
    assert len({section.key for section in SECTIONS}) == len(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.key)
@pytest.mark.parametrize("names", [("plain",), ("vbd", "plain")], ids="-".join)
def test_every_section_has_something_to_say_of_every_run(run, section, names):
    labels = [f"label-{name}" for name in names]
    blocks = section.draw([run(name) for name in names], labels)
    assert blocks
    for block in blocks:
        assert len(getattr(block, "caption", "") or getattr(block, "text", "")) > 10
    if len(names) == 1:
        assert not any(block.heading for block in blocks)
