import pytest
import torch
from torch import nn

from vbdrop import Rates, Units, Weights, convert_, sampling
from vbdrop.layers import Linear
from vbdrop.methods.shared.input_modules import put_before_
from vbdrop.moments import NoRuleError
from vbdrop.moments.noisy import layer_moments, linear_map

LAYERS = {
    "linear": (lambda: nn.Linear(6, 4), (6,)),
    "conv1d": (lambda: nn.Conv1d(6, 4, 3, padding=1, padding_mode="circular"), (6, 5)),
    "conv2d": (lambda: nn.Conv2d(6, 4, 3, stride=2, padding=1, groups=2), (6, 5, 5)),
    "same": (lambda: nn.Conv2d(6, 4, (1, 3), padding="same", bias=False), (6, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1), (6, 3, 3)),
}
MODES = {
    "weights": (Weights(threshold=2.0),),
    "rates": (Rates(per="unit"),),
    "gates": (Units(outputs=lambda module, name: True),),
}


@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_has_the_moments_of_its_samples(kind, modes, agree):
    """4000 samples, as the rows of one forward."""
    build, shape = LAYERS[kind]
    torch.manual_seed(3)
    layer, x = build().double(), torch.randn(2, *shape, dtype=torch.float64)
    convert_(layer, *modes)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("log_sigma2"):
                parameter.uniform_(-4, 1 if name == "log_sigma2" else -1)
            if name.endswith("gate.weight"):
                parameter.uniform_(-1, 1)
    layer.eval()
    with torch.no_grad(), sampling(layer):
        draws = layer(x.repeat(4000, *[1] * (x.dim() - 1))).unflatten(0, (4000, 2))
    found = layer_moments(layer, x)
    agree(found, draws)
    assert found.variance.max() > 0.005


def test_gates_and_noisy_weights_in_one_layer(agree):
    torch.manual_seed(3)
    layer, x = nn.Linear(6, 4).double(), torch.randn(2, 6, dtype=torch.float64)
    convert_(layer, Weights(log_sigma2=-3.0), Units(log_sigma2=-1.0))
    layer.eval()
    with torch.no_grad(), sampling(layer):
        draws = layer(x.repeat(4000, *[1] * (x.dim() - 1))).unflatten(0, (4000, 2))
    agree(layer_moments(layer, x), draws)


def test_the_dead_give_neither_mean_nor_variance():
    layer = nn.Linear(3, 1)
    convert_(layer, Weights(), Units())
    with torch.no_grad():
        layer.log_sigma2[0, 0] = layer.gate.log_sigma2[1] = 20.0
        layer.weight.fill_(1.0)
        layer.log_sigma2[0, 2] = layer.gate.log_sigma2[2] = -30.0
    found = layer_moments(layer, torch.full((1, 3), 7.0))
    torch.testing.assert_close(found.mean_, 7 + layer.bias.detach()[None])
    assert found.variance.item() < 1e-6


def test_gates_of_another_kind_are_named():
    model = nn.Linear(3, 1)
    put_before_(model, lambda layer, first: nn.Dropout(0.5))
    with pytest.raises(NoRuleError, match="Dropout, the gate of Linear"):
        layer_moments(model, torch.ones(1, 3))


def test_the_forward_of_another_class_is_named():
    class NoisyTripled(Linear):
        def forward(self, x):
            return super().forward(3 * x)

    model = nn.Linear(3, 1)
    convert_(model, Weights())
    model.__class__ = NoisyTripled
    with pytest.raises(NoRuleError, match="the forward of NoisyTripled"):
        layer_moments(model, torch.ones(1, 3))


def test_only_a_transposed_convolution_takes_a_size():
    with pytest.raises(NoRuleError, match="`output_size` of Linear"):
        linear_map(nn.Linear(2, 2), [8])
