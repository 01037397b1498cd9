import pytest
import torch
from tests.compression.nets import NETS
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vbdrop.analysis.graph import trace
from vbdrop.analysis.weight_uses import positions
from vbdrop.compression import compress


def macs(model: nn.Module, x: torch.Tensor) -> int:
    counts = positions(trace(model, (x,)))
    return sum(count * model.get_parameter(name).numel() for name, count in counts.items())


def test_multiply_adds_are_those_that_torch_counts():
    for name in ("lenet5", "resnet", "mobilenet", "unet"):
        model, x = NETS[name].build().eval(), NETS[name].example()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(x)
        assert macs(model, x) == counter.get_total_flops() // (2 * len(x)), name


def test_each_step_each_vector_and_each_use_counts():
    lstm = NETS["lstm"].build().eval()
    found = positions(trace(lstm, (NETS["lstm"].example(),)))
    assert found == {
        "embed.weight": 0,
        "lstm.weight_ih_l0": 7,
        "lstm.weight_hh_l0": 7,
        "head.0.weight": 1,
        "head.2.weight": 1,
    }
    layer = nn.Linear(4, 4)
    (uses,) = positions(trace(nn.Sequential(layer, nn.ReLU(), layer).eval(), (torch.zeros(2, 5, 4),))).values()
    assert uses == 10
    transformer = NETS["transformer"].build().eval()
    found = positions(trace(transformer, (NETS["transformer"].example(),)))
    assert found["encoder.layers.0.self_attn.in_proj_weight"] == 5
    assert found["head.0.weight"] == 1


class Product(nn.Module):
    """A weight of a shape, and what a function of it and of the input gives."""

    def __init__(self, function, *shape):
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.randn(shape)), function

    def forward(self, x):
        return self.function(self.weight, x)


def test_a_weight_on_the_left_and_a_stack_of_weights_count_their_products():
    assert macs(Product(lambda w, x: w @ x, 5, 7), torch.zeros(2, 7, 11)) == 5 * 7 * 11
    assert macs(Product(lambda w, x: x.unsqueeze(1) @ w, 4, 7, 5), torch.zeros(2, 3, 7)) == 4 * 3 * 7 * 5
    assert macs(Product(lambda w, x: torch.addmm(torch.zeros(5), x, w), 7, 5), torch.zeros(2, 7)) == 7 * 5


def test_steps_and_examples_are_told_apart():
    one_step = 16 * (5 + 4)
    assert macs(nn.LSTM(5, 4, bias=False).eval(), torch.zeros(7, 2, 5)) == 7 * one_step
    assert macs(nn.LSTM(5, 4, bias=False, batch_first=True).eval(), torch.zeros(2, 7, 5)) == 7 * one_step
    assert macs(nn.LSTM(5, 4, bias=False).eval(), torch.zeros(7, 5)) == 7 * one_step
    assert macs(nn.Conv2d(3, 4, 3, bias=False).eval(), torch.zeros(3, 8, 8)) == 36 * 4 * 27


def test_a_parameter_that_is_only_added_counts_zero():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pos, self.layer = nn.Parameter(torch.randn(1, 4)), nn.Linear(4, 9)

        def forward(self, x):
            return self.layer(x + self.pos.expand(len(x), -1))

    assert positions(trace(Net().eval(), (torch.zeros(2, 4),))) == {"layer.weight": 1, "pos": 0}
    for product in (lambda w, x: x @ w.t(), lambda w, x: x @ (w + 1).t(), lambda w, x: (x.unsqueeze(1) * w).sum(-1)):
        assert positions(trace(Product(product, 5, 7), (torch.zeros(2, 7),))) == {}
    assert compress(Net(), torch.zeros(2, 4), max_macs=36).summary().after.macs == 36


def test_a_deep_network_behind_an_operation_with_several_results_is_followed():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pos, self.scale = nn.Parameter(torch.randn(1, 4)), nn.Parameter(torch.randn(1, 4))

        def forward(self, x):
            first, second = x.chunk(2, 1)
            y = first + self.pos + second * self.scale
            for _ in range(600):
                y = torch.sin(y)
            return y

    assert positions(trace(Net().eval(), (torch.zeros(2, 8),))) == {"pos": 0}


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_transformer_has_steps_wherever_they_are(batch_first):
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=batch_first).eval()
    x = torch.zeros(2, 7, 8) if batch_first else torch.zeros(7, 2, 8)
    assert set(positions(trace(layer, (x,))).values()) == {7}
