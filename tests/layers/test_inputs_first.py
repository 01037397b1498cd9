import pytest
import torch
from tests.layers.inputs_first import NoisyTransposed, Transposed

import vbdrop
from vbdrop.layers import LAYERS, Rates, Units


@pytest.fixture(autouse=True)
def registered():
    vbdrop.register_layer(Transposed, NoisyTransposed)
    yield
    del LAYERS[Transposed]


@pytest.mark.parametrize("training", [True, False])
def test_mean_and_variance_are_those_of_the_closed_form(randomised, has_its_moments, modes, training):
    torch.manual_seed(0)
    plain = Transposed(3, 2)
    layer = randomised(plain, *modes).train(training)
    has_its_moments(layer, plain, torch.randn(1, 3))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_without_noise_it_is_the_plain_layer(noisy, modes, shape):
    plain, x = Transposed(4, 6), torch.randn(shape)
    layer = noisy(plain, *modes)
    torch.testing.assert_close(layer.eval()(x), plain(x), rtol=0, atol=1e-6)
    assert layer.train()(x).shape == (*shape[:-1], 6)


def test_a_rate_or_a_gate_belongs_to_an_input(noisy):
    plain = Transposed(4, 6)
    assert noisy(plain, Rates(per="unit")).log_alpha.shape == (4,)
    assert noisy(plain, Units(), outputs=True).gate.weight.shape == (4,)
    assert noisy(plain, Units(), outputs=True).output_gate.weight.shape == (6,)


def test_dead_units_are_removed_from_both_sides():
    torch.manual_seed(0)
    model = torch.nn.Sequential(Transposed(4, 6), torch.nn.ReLU(), Transposed(6, 2)).eval()
    vbdrop.convert_(model, Units(), example_inputs=torch.randn(3, 4))
    with torch.no_grad():
        model[2].gate.get_submodule("0_channels").log_sigma2[:4] = 5.0
    small = vbdrop.compress(model, torch.randn(3, 4))
    assert [tuple(p.shape) for p in small.model.parameters()] == [(4, 2), (2,), (2, 2), (2,)]
    x = torch.randn(5, 4)
    torch.testing.assert_close(small.model(x), model(x))
    assert small.summary().before.macs == 4 * 6 + 6 * 2
