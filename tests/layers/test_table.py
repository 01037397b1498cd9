import pytest
import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

import vbdrop.layers
from vbdrop.layers import LAYERS, NoisyLayer, Weights, register_layer
from vbdrop.layers.attention import OutProjection


class Scaled(nn.Linear):
    """A layer of a user's own."""

    def forward(self, input):
        return 2 * super().forward(input)


class NoisyScaled(vbdrop.layers.Linear, Scaled):
    def forward(self, input):
        return 2 * vbdrop.layers.Linear.forward(self, input)


@pytest.fixture
def table():
    """The table, which is as it was after the test."""
    before = dict(LAYERS)
    yield LAYERS
    LAYERS.clear()
    LAYERS.update(before)


def test_each_torch_layer_becomes_the_noisy_layer_of_its_name():
    own = {kind: noisy for kind, noisy in LAYERS.items() if kind.__module__.startswith("torch.nn")}
    assert len(own) == 11
    for kind, noisy in own.items():
        inside_attention = kind is NonDynamicallyQuantizableLinear
        assert noisy is (OutProjection if inside_attention else getattr(vbdrop.layers, kind.__name__))
        assert issubclass(noisy, kind)
        assert issubclass(noisy, NoisyLayer)


def test_a_layer_of_ones_own_joins(table):
    register_layer(Scaled, NoisyScaled)
    assert table[Scaled] is NoisyScaled
    plain, x = Scaled(4, 2), torch.randn(3, 4)
    expected = plain(x)
    plain.__class__ = table[Scaled]
    plain.add_noise_(Weights())
    torch.testing.assert_close(plain.eval()(x), expected, rtol=0, atol=1e-6)
    assert not torch.equal(plain.train()(x), plain(x))


@pytest.mark.parametrize("wrong", [Scaled(1, 1), "Scaled", int, None])
def test_the_plain_type_must_be_a_module_class(table, wrong):
    before = dict(table)
    with pytest.raises(TypeError, match=r"`nn_type` must be a subclass of torch\.nn\.Module; got"):
        register_layer(wrong, NoisyScaled)
    assert table == before


@pytest.mark.parametrize(
    "wrong",
    [nn.Linear, Scaled, vbdrop.layers.Linear, vbdrop.layers.Conv2d, NoisyScaled(1, 1), None],
    ids=["plain", "itself", "noisy-of-another", "noisy-conv", "instance", "none"],
)
def test_the_layer_must_be_noisy_and_of_the_plain_type(table, wrong):
    before = dict(table)
    with pytest.raises(TypeError, match=r"`layer` must inherit from vbdrop\.layers\.NoisyLayer and from Scaled; got"):
        register_layer(Scaled, wrong)
    assert table == before
