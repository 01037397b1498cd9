import pytest
import torch
from torch import nn

from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.dead_units import LAYOUT, live_at_best, why_dead_units_stay
from vbdrop.analysis.graph import trace
from vbdrop.analysis.liveness import Liveness, find_live
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


@torch.no_grad()
def test_a_constant_that_stays_with_the_one_that_carries_it_is_named():
    """The convolution needs one constant channel because of its padding; the group of the norm has two."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.GroupNorm(3, 6), nn.Conv2d(6, 2, 3, padding=1)).double().eval()
    model[0].weight[2:4] = model[0].bias[2:4] = 0
    model[1].bias.uniform_(0.5, 1.5)
    x = torch.randn(2, 3, 6, 6).double()
    small = compress(model, x)
    assert small.model.get_parameter("0.weight").shape[0] == 6
    assert small.left["0"].startswith("1 of 6 outputs is dead but kept")
    torch.testing.assert_close(small.model(x), model(x))


@pytest.mark.parametrize("layers", [3, 9])
def test_each_weight_is_looked_at_once(layers, monkeypatch):
    """What carries constants is the same for all weights: it is found once, not once for each of them."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers))).eval()
    traced = trace(model, (torch.randn(2, 4),))
    best, actual = live_at_best(traced, model), find_live(propagate(traced, model))
    looked, carried = [], Liveness.carried
    monkeypatch.setattr(Liveness, "carried", lambda self, uses: looked.append(uses) or carried(self, uses))
    assert why_dead_units_stay(best, actual, dict.fromkeys(actual.uses)) == {}
    assert len(looked) == layers
