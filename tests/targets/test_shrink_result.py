"""What one gets: files, figures and a readable summary."""

import dataclasses
import json

import pytest
import torch
from torch import nn

import vbdrop


@pytest.fixture(scope="module")
def result():
    torch.manual_seed(0)
    x = torch.randn(100, 6)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))
    return vbdrop.shrink(model, (x, y), valid=(x, y), target=vbdrop.Target(macs=4), epochs=5, lr=0.01)


def test_it_can_be_saved_and_exported(result, tmp_path):
    x = torch.randn(3, 6)
    assert result.save(tmp_path / "small.safetensors") == (tmp_path / "small.safetensors").stat().st_size
    loaded = vbdrop.load(
        tmp_path / "small.safetensors", model=nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))
    )
    assert torch.equal(loaded(x), result.model(x))
    assert result.export(tmp_path / "small.pt2").path.exists()


def test_its_figures_are_json(result):
    figures = json.loads(result.to_json())
    assert figures["size"] == result.size == result.summary().after.macs
    assert figures["times"] == pytest.approx(160 / result.size)
    assert len(figures["curve"]) == 5


def test_it_prints_what_matters(result):
    text = str(result)
    assert f"160 macs before, {result.size:.0f} macs now (at most 40 macs)" in text
    assert "validation error" in text
    assert "total" in text
    assert result.plan.shapes


def test_nothing_left_has_no_ratio(result):
    text = str(dataclasses.replace(result, size=0.0)).splitlines()[0]
    assert text == "160 macs before, 0 macs now (at most 40 macs): none left"
