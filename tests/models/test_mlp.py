import pytest
import torch

from vbdrop.models import MLP, mlp


def test_the_forward_pass_is_relu_between_linear_maps():
    torch.manual_seed(0)
    net = MLP([5, 4], inputs=6, classes=3).double()
    x = torch.randn(7, 2, 3, dtype=torch.float64)
    h = x.reshape(7, 6)
    for layer in net.hidden:
        h = (h @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(net(x), h @ net.output.weight.T + net.output.bias)


@pytest.mark.parametrize("units", [100, 340, 580, 820, 1060])
def test_three_hidden_layers_of_equal_width(units):
    assert [layer.out_features for layer in mlp(units).hidden] == [units] * 3


def test_no_hidden_layer_is_a_linear_classifier():
    assert MLP([], inputs=4, classes=2)(torch.zeros(1, 4)).shape == (1, 2)


@pytest.mark.parametrize("hidden", [5, None, "300"])
def test_hidden_widths_that_are_no_sequence_are_named(hidden):
    with pytest.raises(ValueError, match=f"`hidden` must be a sequence of .* got {hidden!r}"):
        MLP(hidden)
