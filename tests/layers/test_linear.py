import math

import pytest
import torch
from torch import nn

from vbdrop.layers import Rates, Units, Weights


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 1, 3, 4)])
def test_any_number_of_leading_axes(noisy, modes, bias, shape):
    plain, x = nn.Linear(4, 6, bias=bias), torch.randn(shape)
    layer = noisy(plain, *modes)
    torch.testing.assert_close(layer.eval()(x), plain(x), rtol=0, atol=1e-6)
    assert layer.train()(x).shape == plain(x).shape


@pytest.mark.parametrize("mode", [Weights(log_sigma2=0.0), Units(log_sigma2=-0.1), Rates(rate=0.5)], ids=str)
def test_every_token_of_a_sequence_has_noise_of_its_own(noisy, mode):
    """10,000 sequences of two equal tokens: their outputs correlate below 5 / sqrt(n)."""
    n = 10_000
    layer = noisy(nn.Linear(3, 1), mode, outputs=False).train()
    nn.init.ones_(layer.weight)
    tokens = layer(torch.ones(n, 2, 3)).detach()[..., 0]
    assert torch.corrcoef(tokens.T)[0, 1].abs() < 5 / math.sqrt(n)


def test_a_rate_a_unit_is_one_an_input_feature(noisy):
    layer = noisy(nn.Linear(4, 6), Rates(per="unit"))
    assert layer.log_alpha.shape == (4,)
    layer.log_alpha.data = torch.tensor([0.0, -40.0, -40.0, -40.0])
    x = torch.tensor([[0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 0.0, 0.0]])
    quiet, loud = (layer.train()(x) - layer.eval()(x)).detach()
    assert quiet.abs().max() < 1e-5
    assert (loud.abs() > 1e-5).all()


@pytest.mark.parametrize("mode", [Weights(), Units(), Rates()], ids=str)
@pytest.mark.parametrize("features", [1, 3, 8])
def test_the_wrong_number_of_features_is_an_error_as_in_the_plain_layer(noisy, mode, features):
    layer = noisy(nn.Linear(4, 6), mode)
    for training in (True, False):
        with pytest.raises((RuntimeError, ValueError), match=r"shapes cannot be multiplied|units on axis"):
            layer.train(training)(torch.ones(2, features))


def test_a_batch_of_nothing_trains(noisy, modes):
    layer = noisy(nn.Linear(4, 6), *modes).train()
    out = layer(torch.zeros(0, 4))
    out.sum().backward()
    assert out.shape == (0, 6)
    assert (layer.weight.grad == 0).all()
