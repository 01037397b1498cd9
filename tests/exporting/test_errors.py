import pytest
import torch
from torch import nn

from vbdrop.exporting import ExportError, export


class Sorted(nn.Module):
    def forward(self, x):
        return x.sort(1).values


class OfOneSample(nn.Module):
    def forward(self, x):
        return x.reshape(1, -1)


class OfThreeOnly(nn.Module):
    def forward(self, x):
        return x + torch.ones(3, 1)


@pytest.mark.parametrize(("model", "name"), [(Sorted(), "net.c"), (OfThreeOnly(), "net.pt2"), (OfOneSample(), "net.c")])
def test_whatever_fails_is_one_kind_of_error_and_leaves_no_file(tmp_path, compiler, model, name):
    with pytest.raises(ExportError):
        export(model, tmp_path / name, torch.randn(3, 3))
    assert list(tmp_path.iterdir()) == []
