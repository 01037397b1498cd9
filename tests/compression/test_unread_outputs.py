import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vbdrop.compression import compress
from vbdrop.compression.unread_outputs import TriedWeight, unread_outputs


def found(model: nn.Module, *args: torch.Tensor, **transposed: bool) -> dict[str, list[int]]:
    weights = [name.removesuffix(".weight") for name, p in model.named_parameters() if p.dim() > 1]
    products = [TriedWeight(f"{name}.weight", f"{name}.bias", transposed.get(name, False)) for name in weights]
    masks = unread_outputs(model, args, {}, products)
    return {name.removesuffix(".weight"): mask.nonzero().flatten().tolist() for name, mask in masks.items()}


class Excited(nn.Module):
    """Its excitation is tied to channels that the second output needs, and has an effect on nothing."""

    def __init__(self):
        super().__init__()
        self.conv, self.excite = nn.Conv2d(3, 4, 1), nn.Linear(4, 4)
        self.first, self.second = nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 1)

    def forward(self, x):
        x = self.conv(x)
        return self.first(x * torch.sigmoid(self.excite(x.mean((2, 3))))[:, :, None, None]), self.second(x)


@torch.no_grad()
def test_channels_that_are_tied_to_needed_ones_are_named():
    model = Excited().double().eval()
    model.first.weight[:, 1:3] = 0
    x = torch.randn(2, 3, 4, 4).double()
    assert found(model, x) == {"excite": [1, 2]}
    assert compress(model, x).left["excite"].startswith("2 of 4 outputs are dead but kept: they are tied to")


class Twice(nn.Module):
    """A weight that is read in two places, of which one uses the first output and the other the last."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return self.fc(x)[:, :1] + F.linear(x, self.fc.weight)[:, 3:]


def test_every_use_of_a_weight_counts():
    assert found(Twice(), torch.randn(5, 3)) == {"fc": [1, 2]}


def test_units_behind_an_activation_that_is_seldom_active_are_not_taken_for_dead():
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 2)).eval()
    with torch.no_grad():
        model[0].bias.fill_(-3)
        model[2].weight[:, :3] = 0
    assert found(model, torch.randn(3, 6)) == {"0": [0, 1, 2]}


@pytest.mark.parametrize("groups", [1, 2])
def test_the_outputs_of_transposed_convolutions(groups):
    model = nn.Sequential(nn.ConvTranspose2d(4, 6, 2, groups=groups), nn.Conv2d(6, 2, 1)).eval()
    with torch.no_grad():
        model[1].weight[:, [1, 4]] = 0
    before = copy.deepcopy(model.state_dict())
    assert found(model, torch.randn(2, 4, 3, 3), **{"0": True}) == {"0": [1, 4]}
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


class Branching(nn.Module):
    """Needed for a choice alone, which has no gradient."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return torch.where(self.fc(x)[:, :1] > 0, x, -x)


def test_what_only_a_choice_depends_on_is_needed():
    assert found(Branching(), torch.randn(8, 3)) == {"fc": [1]}


class Refusing(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        if self.fc(x).abs().max() > 2:
            raise ArithmeticError("too large")
        return x


def test_a_model_that_does_not_take_such_numbers_gives_no_answer():
    model = Refusing()
    with torch.no_grad():
        model.fc.bias.fill_(1.9)
    assert found(model, torch.zeros(4, 3)) == {}


def test_what_an_activation_hides_that_is_hardly_ever_on_is_not_without_effect():
    torch.manual_seed(0)
    layers = nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2, bias=False), nn.ReLU(), nn.Linear(2, 1)
    model = nn.Sequential(*layers).double().eval()
    with torch.no_grad():
        model[1].bias.fill_(-50)
    x = torch.randn(8, 2).double()
    assert not model[2](model[1](model[0](x))).any()
    assert unread_outputs(model, (x,), {}, [TriedWeight("3.weight", "3.bias")]) == {}
