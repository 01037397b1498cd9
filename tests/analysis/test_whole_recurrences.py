"""Recurrent layers are traced as one operation, with the shapes and the layout that torch gives."""

import sys

import pytest
import torch
from torch import nn

from vbdrop._torch_compat import FakeTensorMode
from vbdrop.analysis.graph import trace
from vbdrop.analysis.whole_recurrences import whole_recurrences

LAYERS = {
    "lstm": lambda **options: nn.LSTM(3, 4, **options),
    "projected": lambda **options: nn.LSTM(3, 4, proj_size=2, **options),
    "gru": lambda **options: nn.GRU(3, 4, **options),
    "tanh": lambda **options: nn.RNN(3, 4, **options),
    "relu": lambda **options: nn.RNN(3, 4, nonlinearity="relu", **options),
}


def leaves(results):
    output, states = results
    return [output, *([states] if isinstance(states, torch.Tensor) else states)]


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch says that they are slow
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2, "batch_first": True}], ids=str)
@pytest.mark.parametrize("shape", [(5, 6, 3), (6, 3)], ids=str)
def test_the_results_have_the_shapes_and_the_layout_that_torch_gives(kind, options, shape):
    layer, x = LAYERS[kind](**options).eval(), torch.randn(shape)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.no_grad(), whole_recurrences(), mode:
        found = leaves(layer(mode.from_tensor(x)))
    expected = leaves(layer(x))
    assert [leaf.shape for leaf in found] == [leaf.shape for leaf in expected]
    assert found[0].stride() == expected[0].stride()


def calls_of_a_trace(steps):
    """How many Python functions are called to trace an LSTM over so many steps."""
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += event == "call"

    layer, x = nn.LSTM(3, 4, batch_first=True).eval(), torch.randn(2, steps, 3)
    sys.setprofile(counted)
    try:
        trace(layer, (x,))
    finally:
        sys.setprofile(None)
    return count


def test_a_trace_takes_as_long_for_many_steps_as_for_few():
    calls_of_a_trace(3)  # torch's own preparations
    few = calls_of_a_trace(5)
    assert calls_of_a_trace(50) < 1.5 * few


def test_a_layer_works_as_before_once_the_trace_is_over():
    layer, x = nn.GRU(3, 4).eval(), torch.randn(5, 2, 3)
    expected = layer(x)[0]
    with pytest.raises(KeyError, match="stop"), whole_recurrences():
        raise KeyError("stop")
    assert torch.equal(layer(x)[0], expected)
