import pytest
import torch
from tests.compression.recurrent_nets import DIM, HIDDEN, Packed, Tagger, assert_same, kill_, tokens
from torch import nn

import vbdrop
from vbdrop.layers import Units
from vbdrop.layers.recurrent_forward import sizes_of


def test_a_unit_that_is_read_only_by_dead_ones_goes():
    """Zero columns of the reader alone: the recurrence among units that nobody reads keeps none of them."""
    torch.manual_seed(0)
    model, x = Tagger(nn.LSTM, states=False, bidirectional=False), tokens()
    with torch.no_grad():
        model.tag.weight[:, 1:3], model.whole.weight[:, 1:3] = 0, 0
        model.rnn.weight_hh_l1.view(4, HIDDEN, HIDDEN)[:, [0, 3, 4], 1:3] = 0
    small = vbdrop.compress(model.eval(), x).model
    assert_same(model, small, x)
    assert sizes_of(small.rnn) == [(HIDDEN, HIDDEN), (HIDDEN - 2, HIDDEN - 2)]


def test_a_unit_that_is_always_zero_goes():
    torch.manual_seed(0)
    model, x = Tagger(nn.LSTM, states=False), tokens()
    rnn = model.rnn
    with torch.no_grad():
        for tensor in (rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0):
            tensor[2 * HIDDEN + 1] = 0  # what would enter the cell of unit 1
    small = vbdrop.compress(model.eval(), x).model
    assert_same(model, small, x)
    assert sizes_of(small.rnn)[:2] == [(HIDDEN - 1, HIDDEN - 1), (HIDDEN, HIDDEN)]


def test_constants_that_enter_go_into_the_bias():
    torch.manual_seed(0)
    model = Packed(nn.LSTM)
    with torch.no_grad():
        model.enter.weight[:2] = 0
        model.enter.bias[:2] = 0.7
    x, lengths = torch.randn(4, 7, 4), torch.tensor([3, 7, 1, 5])
    small = vbdrop.compress(model.eval(), (x, lengths)).model
    assert small.rnn.input_size == DIM - 2
    assert_same(model, small, x, lengths)


class Returning(Tagger):
    """Gives its states away: all of their units stay."""

    def forward(self, tokens):
        output, states = self.rnn(self.embedding(tokens))
        return self.tag(output), states[0]


class Given(Tagger):
    """Starts with states of its own."""

    def forward(self, tokens):
        start = torch.ones(4, len(tokens), HIDDEN)
        return (self.tag(self.rnn(self.embedding(tokens), (start, start))[0]),)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(Returning, "states of all layers and directions are read together"), (Given, "initial states are given")],
)
def test_states_that_are_given_or_returned_keep_their_units_and_say_why(kind, reason):
    torch.manual_seed(0)
    model, x = kind(), tokens()
    report = vbdrop.convert_(model, Units(), example_inputs=x)
    assert reason in str(report)
    kill_(model).eval()
    small = vbdrop.compress(model, x).model
    assert_same(model, small, x)
    assert sizes_of(small.rnn)[-1] == (HIDDEN, HIDDEN)
