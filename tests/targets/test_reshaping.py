"""Models that get smaller on the way to a target: the same outputs, the same target, and the same bits after a stop."""

import copy

import pytest
import torch
from tests.stress import count
from torch import nn

import vbdrop
from vbdrop.targets.prunable import plain_without, prunables
from vbdrop.targets.reshaping import Reshaping


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 36, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        return self.head((x + self.two(torch.relu(self.one(x)))).flatten(1))


def converted():
    torch.manual_seed(0)
    model = Residual()
    x = torch.randn(20, 1, 6, 6)
    vbdrop.convert_(model, vbdrop.Units(log_sigma2=-3.0), example_inputs=x[:4])
    return model, x


def plain(model):
    return plain_without(model, [~one.alive() for one in prunables(model)])


def test_a_model_without_its_removed_channels_says_the_same_and_has_a_way_back():
    model, x = converted()
    optimizer = torch.optim.Adam(vbdrop.param_groups(model))
    reshaping = Reshaping(model, x[:4])
    for first in (0, 3):
        for one in prunables(model):
            mask = torch.zeros(one.entry.mean.shape, dtype=torch.bool)
            mask[first % len(mask) : first + 2] = len(mask) > 4
            one.remove_(mask)
        nn.functional.cross_entropy(model(x), torch.randint(3, (20,))).backward()
        optimizer.step()
        optimizer.zero_grad()
        wanted = plain(model)(x)
        assert reshaping.step_(model, optimizer)
        torch.testing.assert_close(plain(model)(x), wanted, atol=1e-5, rtol=1e-5)
    assert model.one.weight.shape[0] < 8
    whole = reshaping.whole(model)
    assert whole.one.weight.shape == (8, 8, 3, 3)
    torch.testing.assert_close(plain(whole)(x), wanted, atol=1e-5, rtol=1e-5)
    again, _ = converted()
    Reshaping(again, x[:4]).load_([plan.to_json() for plan in reshaping.plans], again, torch.optim.Adam([
        *again.parameters()]))  # fmt: skip
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(plain(again)(x), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.stress
@pytest.mark.parametrize("size", [{"macs": 4}, {"weights": 4}][: count(1, 2)])
def test_a_run_that_shrinks_on_the_way_lands_and_goes_on_from_every_checkpoint(tmp_path, size):
    torch.manual_seed(0)
    model, x = Residual(), torch.randn(60, 1, 6, 6)
    y = x.mean((1, 2, 3)).gt(0).long()
    file = tmp_path / "run.pt"
    kept = []

    def run(progress=None):
        return vbdrop.shrink(
            copy.deepcopy(model), (x, y), valid=(x, y), target=vbdrop.Target(**size), epochs=6, lr=0.01, batch_size=20,
            shrink_every=1, checkpoint=file, progress=progress or False,
        )  # fmt: skip

    result = run(lambda point, epochs: kept.append(file.read_bytes()))
    assert 0.6 * result.limit <= result.size <= result.limit
    assert result.summary().before.weights == sum(p.numel() for p in model.parameters() if p.dim() > 1)
    for state in kept[2:5][-count(1, 3) :]:
        file.write_bytes(state)
        again = run()
        assert again.to_json() == result.to_json()
        for one, other in zip(again.model.parameters(), result.model.parameters(), strict=True):
            assert torch.equal(one, other)


def test_shrink_every_is_checked():
    with pytest.raises(ValueError, match="`shrink_every` must be a number of epochs"):
        vbdrop.shrink(nn.Linear(2, 2), (torch.zeros(4, 2), torch.zeros(4).long()), target=vbdrop.Target(weights=2),
                      epochs=2, shrink_every=0)  # fmt: skip
