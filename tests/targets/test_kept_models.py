"""The small models on the way."""

from itertools import pairwise

import pytest
import torch
from tests.compression.streams import FeedForward
from torch import nn

import vbdrop
from vbdrop.targets.kept_models import STEP, KeptModels
from vbdrop.targets.prunable import plain_without, prunables
from vbdrop.targets.reshaping import Reshaping


@pytest.fixture
def data():
    torch.manual_seed(0)
    x = torch.randn(200, 8)
    return x, (x[:, 0] > 0).long()


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 2))


def test_each_has_the_size_and_the_error_that_it_says(data, tmp_path):
    target = vbdrop.Target(macs=8, train=0.0)
    result = vbdrop.shrink(make(), data, valid=data, target=target, epochs=4, lr=0.01, shrink_every=2)
    assert len(result.kept) >= 2
    sizes = [result.before, *(kept.size for kept in result.kept)]
    assert all(small <= STEP * large for large, small in pairwise(sizes))
    assert sizes[-1] > result.size
    for kept in result.kept:
        model = kept.model
        assert sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, nn.Linear)) == kept.size
        wrong = (model(data[0]).argmax(1) != data[1]).float().mean()
        assert 100 * float(wrong) == pytest.approx(kept.error)
        assert kept.times == result.before / kept.size
        assert kept.save(tmp_path / "one.safetensors") == (tmp_path / "one.safetensors").stat().st_size
        again = vbdrop.load(tmp_path / "one.safetensors", model=make())
        assert torch.equal(again(data[0]), model(data[0]))


def test_the_error_is_that_of_the_very_model_that_is_kept():
    """The BatchNorm statistics come from batches in random order: another model has others."""
    torch.manual_seed(0)
    x = torch.randn(200, 8)
    y = (x[:, 0] * x[:, 1] > 0).long()
    layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(16, 2))
    settings = {"epochs": 2, "lr": 0.01, "batch_size": 40, "shrink_every": 1}
    target = vbdrop.Target(macs=4, train=0.0, refine=0.0)
    result = vbdrop.shrink(model, (x, y), valid=(x, y), target=target, **settings)
    assert result.kept
    for kept in result.kept:
        wrong = 100 * float((kept.model(x).argmax(1) != y).float().mean())
        assert wrong == pytest.approx(kept.error) == result.curve[kept.epoch - 1].error


def residual():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), FeedForward(), nn.LayerNorm(16), nn.Linear(16, 2))


@pytest.mark.parametrize("reshaped", [False, True])
def test_a_model_with_gates_in_its_norms_can_be_kept(reshaped, data, tmp_path):
    x, model = data[0][:3], residual()
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    for one in prunables(model):
        one.remove_(torch.arange(one.entry.mean.numel()) % 3 == 0)
    plain = plain_without(model, [~one.alive() for one in prunables(model)])
    if reshaped:
        reshaping = Reshaping(model, x)
        assert reshaping.step_(model, torch.optim.Adam(model.parameters()))
        whole = reshaping.whole(model)
        plain = plain_without(whole, [~one.alive() for one in prunables(whole)])
    kept = KeptModels(residual(), x, before=1000, least=1)
    kept.add(1, 500, None, plain)
    (one,) = kept.models
    assert one.model[1].up.in_features == 10
    assert torch.allclose(one.model(x), plain(x), atol=1e-6)
    one.save(tmp_path / "one.safetensors")
    assert torch.equal(vbdrop.load(tmp_path / "one.safetensors", model=residual())(x), one.model(x))


@pytest.mark.parametrize(
    "change",
    [lambda model: vbdrop.convert_(model, vbdrop.Weights()), nn.Module.half, lambda model: model.pop(1)],
    ids=["converted", "half", "without a layer"],
)
def test_what_becomes_of_the_original_does_not_matter(change, data):
    model, target = make(), vbdrop.Target(macs=8, train=0.0)
    result = vbdrop.shrink(model, data, valid=data, target=target, epochs=4, lr=0.01)
    assert result.kept
    change(model)
    for kept in result.kept:
        wrong = (kept.model(data[0]).argmax(1) != data[1]).float().mean()
        assert 100 * float(wrong) == pytest.approx(kept.error)


def test_models_are_kept_without_another_copy_of_the_weights():
    kept = KeptModels(make(), torch.zeros(2, 8), before=100, least=20)
    kept.add(1, 50, None, make())
    outlined, devices = kept.models[0].outlined
    assert all(value.is_meta for value in outlined.state_dict().values())
    assert set(devices.values()) == {torch.device("cpu")}


def test_sizes_are_a_step_apart_and_above_the_result():
    kept = KeptModels(make(), torch.zeros(2, 8), before=100, least=20)
    assert [size for size in (100, 71, 70, 20, 19) if kept.is_next(size)] == [70, 20]
    kept.add(1, 50, None, make())
    assert [size for size in (50, 36, 35, 20) if kept.is_next(size)] == [35, 20]


def test_a_model_that_has_no_file_is_left_out():
    class Extra(nn.Linear):
        def get_extra_state(self):
            return "more than tensors"

        def set_extra_state(self, state):
            pass

    kept = KeptModels(Extra(3, 2), torch.zeros(2, 3), before=6, least=1)
    kept.add(1, 2, None, Extra(3, 2))
    assert kept.models == []
