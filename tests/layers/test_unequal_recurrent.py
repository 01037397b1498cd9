import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vbdrop.layers.recurrent_forward import cell_names, sizes_of
from vbdrop.layers.unequal_recurrent import EQUAL, UNEQUAL, check_shapes, refit_

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

KINDS = {
    "lstm": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
    "lstm-projected": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2),
    "gru": lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True, bias=False),
    "rnn": lambda: nn.RNN(3, 4, num_layers=3, batch_first=True),
}


@pytest.fixture(params=KINDS)
def layer(request):
    return KINDS[request.param]().eval()


@torch.no_grad()
def without_last_unit(layer, cell):
    """The layer with the last hidden unit of one layer and direction made zero for all that read it, and without it."""
    directions = 1 + layer.bidirectional
    zeroed, small = copy.deepcopy(layer), copy.deepcopy(layer)
    names, blocks = cell_names(layer)[cell], {"LSTM": 4, "GRU": 3}.get(layer.mode, 1)
    hidden, leaving = sizes_of(layer)[cell]
    keep = torch.tensor([row for row in range(blocks * hidden) if row % hidden != hidden - 1])
    projects = leaving != hidden
    for name in names:
        weight = getattr(small, name)
        weight.data = weight[:, :-1] if "_hr" in name else weight[keep]
    if projects:
        getattr(zeroed, names[-1])[:, -1] = 0
    else:
        getattr(zeroed, names[1])[:, -1] = 0
        getattr(small, names[1]).data = getattr(small, names[1])[:, :-1]
        column = (cell % directions) * hidden + hidden - 1
        for above in cell_names(layer)[(cell // directions + 1) * directions :][:directions]:
            getattr(zeroed, above[0])[:, column] = 0
            entering = getattr(small, above[0])
            entering.data = torch.cat([entering[:, :column], entering[:, column + 1 :]], 1)
    refit_(small)
    return zeroed, small


def parts(layer, result):
    return result[0], (result[1] if layer.mode == "LSTM" else (result[1],))


@pytest.mark.parametrize("cell", [0, 1])
def test_it_is_the_torch_layer_without_what_nothing_reads(layer, cell):
    zeroed, small = without_last_unit(layer, cell)
    assert type(small) is UNEQUAL[type(layer)]
    assert len(set(sizes_of(small))) == 2
    x, lengths = torch.randn(4, 6, 3), torch.tensor([2, 6, 1, 4])
    given = x if layer.batch_first else x.transpose(0, 1)
    (expected, old), (found, new) = parts(layer, zeroed(given)), parts(layer, small(given))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(new[0][-1], old[0][-1])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    (expected, old), (found, new) = parts(layer, zeroed(packed)), parts(layer, small(packed))
    torch.testing.assert_close(pad_packed_sequence(found), pad_packed_sequence(expected))
    for kind, other in zip(new, old, strict=True):
        torch.testing.assert_close(kind[-1], other[-1])
    torch.testing.assert_close(small(x[0])[0], zeroed(x[0])[0])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_states_go_on_where_they_ended(kind):
    _, small = without_last_unit(kind(3, 4, num_layers=3, batch_first=True), 0)
    x = torch.randn(2, 6, 3)
    whole, _ = small(x)
    _, state = small(x[:, :4])
    torch.testing.assert_close(small(x[:, 4:], state)[0], whole[:, 4:])


def test_dropout_between_unequal_layers():
    layer = nn.GRU(3, 4, num_layers=2, dropout=0.5)
    _, small = without_last_unit(layer, 0)
    x = torch.randn(5, 2, 3)
    assert torch.equal(small.eval()(x)[0], small(x)[0])
    assert not torch.equal(small.train()(x)[0], small(x)[0])


def test_equal_sizes_are_the_torch_layer_again(layer):
    _, small = without_last_unit(layer, 0)
    small.__dict__["_parameters"].update(copy.deepcopy(layer)._parameters)
    refit_(small)
    assert type(small) is type(layer) is EQUAL[UNEQUAL[type(layer)]]
    assert (small.input_size, small.hidden_size, small.proj_size) == (3, 4, layer.proj_size)


def test_it_says_its_sizes(layer):
    _, small = without_last_unit(layer, 0)
    assert f"sizes=[{', '.join(str(leaving) for _, leaving in sizes_of(small))}]" in repr(small)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("weight_ih_l0", (16, 2)), ("weight_hh_l0", (12, 4)), ("weight_ih_l1", (16, 7)), ("bias_hh_l1", (15,))],
)
def test_shapes_that_do_not_fit_are_refused(name, shape):
    layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    getattr(layer, name).data = torch.zeros(shape)
    with pytest.raises(ValueError, match="must have the shape"):
        check_shapes(layer)


def test_a_projection_must_make_fewer():
    wide = nn.LSTM(3, 4, proj_size=2)
    for name, shape in (("weight_hh_l0", (16, 4)), ("weight_hr_l0", (4, 4))):
        getattr(wide, name).data = torch.zeros(shape)
    with pytest.raises(ValueError, match="must have one column per output unit"):
        check_shapes(wide)
