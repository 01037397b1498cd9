import pytest
import torch
from torch import nn

from vbdrop.exporting import FORMATS, export
from vbdrop.exporting.runtimes import RUNTIMES


class Small(nn.Module):
    """A small model as compression leaves it: selected inputs, a sparse layer, a carrier added to a part."""

    def __init__(self):
        super().__init__()
        self.register_buffer("inputs", torch.tensor([0, 2, 3, 7, 9]))
        self.register_buffer("channels", torch.tensor([1, 2]))
        self.first, self.second, self.head = nn.Linear(5, 4), nn.Linear(4, 2), nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.first(x.index_select(1, self.inputs)))
        return self.head(x.index_add(1, self.channels, self.second(x)))


@pytest.mark.parametrize("ending", list(FORMATS))
def test_every_format_agrees_with_the_model(tmp_path, compiler, ending):
    torch.manual_seed(0)
    exported = export(Small(), tmp_path / f"net{ending}", torch.randn(2, 10))
    assert exported.verified
    assert exported.difference < 1e-6
    assert exported.path.suffix == ending


def test_every_format_can_be_timed():
    assert set(FORMATS) == set(RUNTIMES)
    assert all(entry.summary for entry in FORMATS.values())
