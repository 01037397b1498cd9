from types import SimpleNamespace

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.analysis.key_value_cache import without_cache
from vbdrop.layers import Units


class Cached(nn.Module):
    """A model that returns an object of its own besides its output, as language models do."""

    class Cache:
        pass

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(use_cache=True)
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x):
        out = self.last(torch.relu(self.first(x)))
        return (out, self.Cache()) if self.config.use_cache else (out,)


def test_the_setting_comes_back_after_an_error_too():
    model = nn.Sequential(Cached())
    seen = []
    with pytest.raises(ZeroDivisionError), without_cache(model):
        seen.append(model[0].config.use_cache) or 1 / 0
    assert seen == [False]
    assert model[0].config.use_cache is True


def test_a_model_with_its_cache_on_is_converted_and_compressed_and_still_returns_it():
    model, x = Cached(), torch.randn(2, 3)
    vbdrop.convert_(model, Units(), example_inputs=x)
    with torch.no_grad():
        model.last.gate.first_channels.log_sigma2[:5] = 9.0
    small = vbdrop.compress(model.eval(), x)
    assert small.model.last.in_features == 3
    assert isinstance(small.model(x)[1], Cached.Cache)
    assert torch.allclose(small.model(x)[0], model(x)[0], atol=1e-6)


def test_a_model_with_its_cache_on_is_exported_without_it(tmp_path):
    model, x = Cached().eval(), torch.randn(2, 3)
    assert vbdrop.export(model, tmp_path / "net.pt2", x).verified
    assert model.config.use_cache is True
