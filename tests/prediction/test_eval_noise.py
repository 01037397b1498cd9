"""Noise in eval mode."""

import pytest
import torch
from tests.prediction.networks import linear
from torch import nn

from vbdrop import Rates, Units, Weights, convert_, predict, sampling


class TestSampling:
    @pytest.mark.parametrize("modes", [(Weights(log_sigma2=-3.0),), (Units(log_sigma2=-3.0),), (Rates(),)])
    def test_it_draws_noise_in_eval_inside_only(self, modes):
        layer, x = nn.Linear(5, 3), torch.randn(2, 5)
        convert_(layer, *modes)
        layer.eval()
        with sampling(layer) as inside:
            assert inside is layer
            assert not torch.equal(layer(x), layer(x))
            assert not layer.training
        assert torch.equal(layer(x), layer(x))

    def test_it_is_restored_after_an_exception(self):
        layer, x = linear().eval(), torch.randn(2, 5)
        with pytest.raises(KeyError), sampling(layer):
            raise KeyError
        assert torch.equal(layer(x), layer(x))

    def test_it_nests(self):
        model = nn.Sequential(linear(), nn.Linear(3, 5), linear()).eval()
        x = torch.randn(2, 5)
        with sampling(model[0]):
            with sampling(model):
                predict(model, x, samples=2)
                assert not torch.equal(model[2](x), model[2](x))
            assert not torch.equal(model[0](x), model[0](x))
            assert torch.equal(model[2](x), model[2](x))
        assert torch.equal(model(x), model(x))
