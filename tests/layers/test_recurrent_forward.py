import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vbdrop.layers.recurrent_forward import recurrent, sizes_of

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

LAYERS = [
    nn.LSTM(3, 4, num_layers=2, bidirectional=True),
    nn.LSTM(3, 4, num_layers=2, proj_size=2, batch_first=True),
    nn.GRU(3, 4, bias=False),
    nn.RNN(3, 4, nonlinearity="relu", bidirectional=True),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("form", ["batch", "single", "packed"])
def test_it_is_the_forward_of_the_layer_to_the_bit(layer, form):
    x = torch.randn(5, 6, 3)
    if form == "single":
        x = x[0]
    if form == "packed":
        x = pack_padded_sequence(x, torch.tensor([6, 2, 4, 1, 3]), batch_first=True, enforce_sorted=False)
    weights = list(layer.parameters())
    state = None
    for _ in range(2):  # from zeros, and from where it ended
        expected, found = layer(x, state), recurrent(layer, weights, x, state)
        if form == "packed":
            assert torch.equal(pad_packed_sequence(found[0])[0], pad_packed_sequence(expected[0])[0])
        else:
            assert torch.equal(found[0], expected[0])
        pairs = zip(found[1], expected[1], strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        state = expected[1]


def test_sizes_are_those_of_the_weights():
    assert sizes_of(LAYERS[0]) == [(4, 4)] * 4
    assert sizes_of(LAYERS[1]) == [(4, 2)] * 2


def test_states_of_another_number_are_refused():
    with pytest.raises(ValueError, match="`hx` must have one state for each of the 4 layers and directions"):
        recurrent(LAYERS[0], list(LAYERS[0].parameters()), torch.zeros(2, 1, 3), (torch.zeros(2, 1, 4),) * 2)
