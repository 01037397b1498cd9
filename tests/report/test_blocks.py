"""What a template can show: every kind of block has its own part there."""

from pathlib import Path
from typing import get_args

import vbdrop.report
from vbdrop.report.blocks import Block


def test_the_template_knows_every_kind_of_block():
    template = (Path(vbdrop.report.__file__).parent / "templates/report.html").read_text()
    kinds = [kind.kind for kind in get_args(Block)]
    assert sorted(kinds) == ["figure", "grid", "note", "slider"]
    assert all(f'block.kind == "{kind}"' in template for kind in kinds if kind != "note")
