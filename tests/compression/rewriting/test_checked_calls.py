import pytest
import torch
from torch import nn

from vbdrop.compression.rewriting import checked_calls

aten = torch.ops.aten
LONG, SHORT = torch.rand(50), torch.rand(1)


def test_batch_normalization_is_the_operation_itself():
    x = torch.rand(3, 50, 2)
    expected = aten._native_batch_norm_legit_no_training.default(x, LONG, LONG, LONG, LONG, 0.1, 1e-5)[0]
    assert torch.equal(checked_calls.batch_norm(x, LONG, LONG, LONG, LONG, 0.1, 1e-5)[0], expected)
    expected = aten._native_batch_norm_legit.no_stats(x, LONG, None, True, 0.1, 1e-5)[0]
    assert torch.equal(checked_calls.batch_norm_without_statistics(x, LONG, None, True, 0.1, 1e-5)[0], expected)


@pytest.mark.parametrize("short", range(4))
def test_batch_normalization_does_not_read_past_the_end_of_a_short_tensor(short):
    tensors = [LONG] * 4
    tensors[short] = SHORT
    with pytest.raises(ValueError, match=r"one number per channel; got a tensor of shape \[1\]"):
        checked_calls.batch_norm(torch.rand(3, 50, 2), *tensors, 0.1, 1e-5)
    if short < 2:
        with pytest.raises(ValueError, match="one number per channel"):
            checked_calls.batch_norm_without_statistics(torch.rand(3, 50, 2), *tensors[:2], True, 0.1, 1e-5)


def test_batch_normalization_without_statistics_takes_those_of_its_input():
    with pytest.raises(ValueError, match="must use those of its input; got training=False"):
        checked_calls.batch_norm_without_statistics(torch.rand(3, 50), None, None, False, 0.1, 1e-5)


@pytest.mark.parametrize("shape", [[], [3], [0]])
def test_batch_normalization_needs_an_axis_of_channels(shape):
    """Without one, the operation itself ends the process."""
    with pytest.raises(ValueError, match="must have channels on axis 1; got the shape"):
        checked_calls.batch_norm_without_statistics(torch.rand(shape), None, None, True, 0.1, 1e-5)
    with pytest.raises(ValueError, match="must have channels on axis 1; got the shape"):
        checked_calls.batch_norm(torch.rand(shape), None, None, torch.rand(3), torch.rand(3), 0.1, 1e-5)


def test_attention_needs_as_many_values_as_keys():
    query, key = torch.rand(1, 2, 4, 8), torch.rand(1, 2, 6, 8)
    expected = nn.functional.scaled_dot_product_attention(query, key, key, scale=0.3)
    assert torch.equal(checked_calls.attention(query, key, key, scale=0.3), expected)
    with pytest.raises(ValueError, match="as many keys as values"):
        checked_calls.attention(query, key, key[:, :, :5])


OPTIONS = [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}]


@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.LSTM, {"proj_size": 3}), *((kind, options) for kind in (nn.LSTM, nn.GRU, nn.RNN) for options in OPTIONS)],
)
def test_the_shapes_of_recurrent_weights_are_those_of_torch(kind, options):
    layer = kind(7, 5, **options)
    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[kind]
    outputs = layer.proj_size or layer.hidden_size
    found = checked_calls.recurrent_shapes(gates, 7, 5, outputs, layer.num_layers, layer.bias, layer.bidirectional)
    assert found == [list(weight.shape) for weight in layer._flat_weights]


def lstm(change=lambda weights, states: None, **options):
    layer = nn.LSTM(7, 5, **options).requires_grad_(False)
    weights = list(layer._flat_weights)
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    states = [torch.zeros(rows, 4, layer.proj_size or 5), torch.zeros(rows, 4, 5)]
    x = torch.rand(3, 4, 7)
    expected = layer(x)[0]
    change(weights, states)
    arguments = (x, states, weights, layer.bias, layer.num_layers, 0.0, False, layer.bidirectional, False)
    return checked_calls.lstm(*arguments)[0], expected


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("options", [*OPTIONS, {"proj_size": 3}])
def test_an_lstm_is_the_operation_itself(options):
    found, expected = lstm(**options)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda weights, states: weights.__setitem__(0, torch.rand(1, 1)),
        lambda weights, states: weights.__setitem__(1, torch.rand(1, 1)),
        lambda weights, states: weights.__setitem__(2, torch.rand(1)),
        lambda weights, states: weights.pop(),
        lambda weights, states: states.__setitem__(0, torch.zeros(1, 4, 500)),
        lambda weights, states: states.__setitem__(slice(None), [torch.zeros(1, 1, 5)] * 2),
        lambda weights, states: states.pop(),
        lambda weights, states: states.__setitem__(0, torch.zeros(5)),
    ],
)
def test_an_lstm_does_not_read_past_the_end_of_short_tensors(change):
    with pytest.raises(ValueError, match="LSTM must have"):
        lstm(change)


def gru(states=None, change=lambda weights: None, **options):
    layer = nn.GRU(7, 5, **options).requires_grad_(False)
    weights, x = list(layer._flat_weights), torch.rand(3, 4, 7)
    states = torch.zeros(layer.num_layers * (2 if layer.bidirectional else 1), 4, 5) if states is None else states
    change(weights)
    arguments = (x, states, weights, layer.bias, layer.num_layers, 0.0, False, layer.bidirectional, False)
    return checked_calls.gru(*arguments)[0], layer(x)[0]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_gru_is_the_operation_itself(options):
    found, expected = gru(**options)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("rows", [1, 2, 14, 16])
def test_a_gru_does_not_look_for_gates_that_its_weights_do_not_have(rows):
    """With fewer rows than gates, the operation itself ends the process."""

    def cut(weights):
        weights[:] = [torch.rand(rows, *weight.shape[1:]) for weight in weights]

    with pytest.raises(ValueError, match="the tensors of a GRU must have the shapes"):
        gru(change=cut)
    with pytest.raises(ValueError, match="the tensors of a GRU must have the shapes"):
        gru(torch.zeros(1, 4, rows))
    with pytest.raises(ValueError, match="a GRU must have an input and a state of three axes"):
        gru(torch.zeros(4, 5))


def test_sizes_stay_within_what_a_tensor_can_have():
    assert checked_calls.add_sizes(2, 3) == 5
    assert checked_calls.subtract_sizes(2, 3) == -1
    assert checked_calls.multiply_sizes(2**31, 2**31) == 2**62
    with pytest.raises(ValueError, match=r"computed the size 9\.22e\+18"):
        checked_calls.multiply_sizes(2**31, 2**32)
    with pytest.raises(TypeError, match="only with numbers; got a tuple"):
        checked_calls.multiply_sizes((1, 2), 10**9)
