import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vbdrop.analysis.graph import export
from vbdrop.analysis.size_formulas import LONGEST, LongFormulaError, ShortFormulas
from vbdrop.analysis.size_guards import other_sizes

LENGTHS: list[int] = []
"""The lengths of the formulas that `PaddedWindows` has seen; torch.export restores what is stored in a module."""


@pytest.fixture(autouse=True)
def _none_yet():
    LENGTHS.clear()


def length(formula):
    return 1 + sum(map(length, formula.args))


class PaddedWindows(nn.Module):
    """Each stage pads to whole windows and halves the size: its formula holds that of the last stage many times."""

    def __init__(self, stages):
        super().__init__()
        self.stages = stages

    def forward(self, x):
        if x.shape[1] < 50:
            x = x + 1
        for _ in range(self.stages):
            LENGTHS.extend(length(size.node.expr) for size in x.shape if isinstance(size, torch.SymInt))
            x = F.pad(x, (0, (7 - x.shape[1] % 7) % 7))
            x = F.pad(x, (0, (4 - x.shape[1] % 4) % 4))[:, 1::2]
        return x


def test_a_trace_stops_where_the_formula_of_a_size_becomes_too_long():
    model = PaddedWindows(stages=3).eval()
    with pytest.raises(LongFormulaError, match=f"more than {LONGEST} terms"), ShortFormulas():
        export(model, (torch.zeros(4, 30),), {}, lambda x: range(x.dim()))
    assert 1 < max(LENGTHS) <= LONGEST


def test_the_conditions_before_that_are_still_tried():
    model = PaddedWindows(stages=3).eval()
    found = other_sizes(model, (torch.zeros(4, 30),), {})
    assert (((0, 1),), 50) in {(other.axes, other.size) for other in found if "asks for" in other.reason}
    assert max(LENGTHS) <= LONGEST  # no work on longer ones


def test_short_formulas_are_followed_to_the_end():
    with ShortFormulas():
        program = export(PaddedWindows(stages=1).eval(), (torch.zeros(4, 30),), {}, lambda x: range(x.dim()))
    assert any("slice" in node.name for node in program.graph.nodes)
