import torch
from tests.compression.recurrent_nets import assert_same
from torch import nn

import vbdrop
from vbdrop.layers.recurrent_forward import sizes_of


class Joined(nn.Module):
    """A recurrent layer in a residual sum behind a convolution: the forward has to be replaced to remove all."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.rnn = nn.Linear(4, 12), nn.GRU(12, 6, num_layers=2, bidirectional=True)
        self.leave = nn.Linear(12, 3)

    def forward(self, x):
        x = self.enter(x)
        output, states = self.rnn(x)
        return self.leave(torch.relu(output) + x), states[1] * 2


def test_a_new_forward_calls_the_layer_and_saves(tmp_path):
    torch.manual_seed(0)
    model, x = Joined(), torch.randn(5, 2, 4)
    with torch.no_grad():
        model.enter.weight[:6], model.enter.bias[:6] = 0, 0
        model.leave.weight[:, [7, 8]] = 0
        model.rnn.weight_hh_l1.view(3, 6, 6)[:, :, 1:3] = 0
        model.rnn.weight_hh_l1_reverse.view(3, 6, 6)[:, :, 1:4] = 0
    small = vbdrop.compress(model.eval(), x, rewrite_gain=0.0)
    assert isinstance(small.model, torch.fx.GraphModule)
    assert len(set(sizes_of(small.model.rnn))) > 1
    assert_same(model, small.model, x)
    small.save(tmp_path / "small.safetensors")
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=Joined())
    assert all(torch.equal(a, b) for a, b in zip(loaded(x), small.model(x), strict=True))
    again = vbdrop.compress(small.model, x, rewrite_gain=0.0)
    assert_same(model, again.model, x)
