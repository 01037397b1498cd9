import pytest
import torch
from torch import nn

from vbdrop.analysis.dead_units import LAYOUT
from vbdrop.compression import compress


class Unknown(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 2)


@torch.no_grad()
@pytest.mark.parametrize(
    "norm",
    [nn.InstanceNorm2d(16, affine=True), nn.InstanceNorm2d(16), nn.GroupNorm(16, 16), nn.GroupNorm(4, 16), Unknown()],
    ids=["instance, affine", "instance", "group of one", "group of four", "cumsum"],
)
def test_unread_channels_go_or_are_named(norm):
    model = nn.Sequential(nn.Conv2d(3, 16, 3), norm, nn.ReLU(), nn.Conv2d(16, 4, 3)).eval()
    model[3].weight[:, :8] = 0
    small = compress(model, torch.randn(2, 3, 8, 8))
    kept = small.model.get_submodule("0").out_channels
    assert kept == 8 or small.left["0"].startswith(f"{kept - 8} of 16 outputs are dead but kept: ")


@torch.no_grad()
def test_groups_of_equal_size_are_the_reason_of_what_they_keep():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1, groups=2)).eval()
    model[2].weight[:2, :3] = 0
    small = compress(model, torch.randn(2, 3, 4, 4))
    stays = small.model.get_submodule("0").out_channels - 5
    assert stays > 0
    assert small.left["0"] == f"{stays} of 8 outputs are dead but kept: {LAYOUT}"
