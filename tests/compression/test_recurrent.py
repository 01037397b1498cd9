"""Recurrent layers and embeddings from conversion to files: hidden units and features are removed exactly."""

import copy
import pathlib

import pytest
import torch
from tests.compression.recurrent_nets import DIM, HIDDEN, WORDS, Packed, Tagger, assert_same, kill_, size, tokens
from tests.stress import only_in_stress
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import vbdrop
from vbdrop.compression.rewriting.apply_plan import apply_plan_
from vbdrop.compression.rewriting.restore import restore_
from vbdrop.layers import Units, Weights
from vbdrop.layers.recurrent_forward import sizes_of
from vbdrop.layers.unequal_recurrent import UNEQUAL

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

KINDS = {
    "lstm": (nn.LSTM, {}),
    "gru-forward": (nn.GRU, {"bidirectional": False, "dropout": 0.2}),
    "rnn-unbiased": (nn.RNN, {"bias": False, "batch_first": True}),
    "projected": (nn.LSTM, {"proj_size": 3}),
}


@pytest.mark.parametrize(
    ("kind", "states", "shared"),
    [
        *(("lstm", True, True), ("projected", False, True)),
        *(("gru-forward", True, False), ("rnn-unbiased", False, False)),
    ],
)
def test_dead_units_go_exactly_and_the_forward_stays(kind, states, shared, tmp_path):
    torch.manual_seed(0)
    cell, options = KINDS[kind]
    model, x = Tagger(cell, states=states, **options), tokens()
    before = size(model)
    vbdrop.convert_(model, Units(), example_inputs=x if shared else None)
    kill_(model).eval()
    small = vbdrop.compress(model, x)
    assert type(small.model) is Tagger
    assert size(small.model) < (0.75 if shared else 0.95) * before
    for tried in (x, tokens(3, 12), tokens(1, 1)):
        assert_same(model, small.model, tried)
    small.save(tmp_path / "small.safetensors")
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=Tagger(cell, states=states, **options))
    assert all(torch.equal(a, b) for a, b in zip(loaded(x), small.model(x), strict=True))


def test_a_group_of_dead_gates_takes_its_rows_and_columns_everywhere():
    torch.manual_seed(0)
    model, x = Tagger(nn.LSTM), tokens()
    report = vbdrop.convert_(model, Units(), example_inputs=x)
    names = {"embedding": DIM, "rnn.l0": HIDDEN, "rnn.l0_reverse": HIDDEN, "rnn.l1": HIDDEN, "rnn.l1_reverse": HIDDEN}
    assert {group.name: group.units for group in report.groups[0].groups} == names
    assert report.groups[0].weights == 1.0
    kill_(model, 0.0)
    gates = {name.rpartition(".")[2]: gate for name, gate in model.named_modules() if name.endswith("_channels")}
    for name, dead in {"embedding": [0, 5], "rnn_l0": [1], "rnn_l0_reverse": [0, 2, 3], "rnn_l1": [4]}.items():
        gates[f"{name}_channels"].log_sigma2.data[dead] = 5.0
    small = vbdrop.compress(model.eval(), x).model
    assert_same(model, small, x)
    assert sizes_of(small.rnn) == [(4, 4), (2, 2), (4, 4), (5, 5)]
    assert small.embedding.weight.shape == (WORDS, 4)
    assert small.rnn.weight_ih_l0.shape == (16, 4)
    assert small.rnn.weight_hh_l0_reverse.shape == (8, 2)
    assert small.rnn.weight_ih_l1.shape == (16, 6)
    assert small.tag.weight.shape == (3, 9)
    assert small.embedding.padding_idx == 0


def test_all_units_of_a_direction_dead_leaves_one():
    torch.manual_seed(0)
    model, x = Tagger(nn.GRU), tokens()
    vbdrop.convert_(model, Units(), example_inputs=x)
    kill_(model, 1.0)
    with pytest.warns(UserWarning, match="outputs no longer depend on the inputs"):
        small = vbdrop.compress(model.eval(), x)
    assert_same(model, small.model, x)
    assert sizes_of(small.model.rnn) == [(1, 1)] * 4
    assert type(small.model.rnn) is nn.GRU


@pytest.mark.parametrize(("kind", "batch_first"), [(nn.LSTM, True), (nn.GRU, False)])
def test_packed_sequences(kind, batch_first):
    torch.manual_seed(0)
    model = Packed(kind, batch_first=batch_first)
    x, lengths = torch.randn(4, 7, 4), torch.tensor([3, 7, 1, 5])
    report = vbdrop.convert_(model, Units(), example_inputs=(x, lengths))
    assert len(report.groups[0].groups) == 5
    kill_(model).eval()
    small = vbdrop.compress(model, (x, lengths))
    assert size(small.model) < 0.75 * size(Packed(kind))
    assert_same(model, small.model, x, lengths)
    assert_same(model, small.model, torch.randn(6, 9, 4), torch.tensor([9, 1, 1, 4, 8, 2]))


@pytest.mark.parametrize(("padding", "units"), [(0.0, 3), (-1.0, 6)])
def test_units_stay_whose_padding_is_read(padding, units):
    """A unit that is zero in every step is not zero in the padding, even if no example is padded."""

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.LSTM(4, 6, batch_first=True, bias=False), nn.Linear(6, 3)

        def forward(self, x, lengths):
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            steps, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, padding_value=padding)
            return self.out(steps.mean(1))

    torch.manual_seed(0)
    model, x, whole = Mean().eval(), torch.randn(3, 7, 4), torch.tensor([7, 7, 7])
    with torch.no_grad():
        model.rnn.weight_ih_l0.view(4, 6, -1)[:, :3] = 0
        model.rnn.weight_hh_l0.view(4, 6, -1)[:, :3] = 0
    small = vbdrop.compress(model, (x, whole)).model
    assert small.rnn.hidden_size == units
    assert_same(model, small, x, whole)
    assert_same(model, small, x, torch.tensor([7, 3, 5]))


@pytest.mark.parametrize("example", [[7, 7, 7], [7, 3, 5]])
def test_a_constant_is_none_in_the_padding(example):
    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.fc, self.out = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x, lengths):
            packed, _ = self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
            packed = packed._replace(data=torch.tanh(self.fc(packed.data)))
            return self.out(pad_packed_sequence(packed, batch_first=True)[0]).sum(1)

    torch.manual_seed(0)
    model, x = Between().eval(), torch.randn(3, 7, 4)
    with torch.no_grad():
        model.fc.weight[[2, 5, 6, 7]] = 0
        model.fc.bias[[2, 5, 6]] = 1.0
        model.fc.bias[7] = 0.0
    small = vbdrop.compress(model, (x, torch.tensor(example))).model
    assert small.fc.out_features == 7
    assert_same(model, small, x, torch.tensor([7, 3, 5]))


def test_noisy_weights_of_recurrent_layers_become_zeros():
    torch.manual_seed(0)
    model, x = Tagger(nn.GRU), tokens()
    vbdrop.convert_(model, Weights())
    with torch.no_grad():
        model.rnn.log_sigma2_hh_l1[torch.rand(3 * HIDDEN, HIDDEN) < 0.5] = 20.0
        model.rnn.log_sigma2_ih_l1[:, 2] = 20.0
        model.rnn.log_sigma2_ih_l1_reverse[:, 2] = 20.0
        model.rnn.log_sigma2_hh_l0[:, 2] = 20.0
    small = vbdrop.compress(model.eval(), x)
    assert_same(model, small.model, x)
    assert sizes_of(small.model.rnn)[0] == (HIDDEN - 1, HIDDEN - 1)
    assert 0.3 < float((small.model.rnn.weight_hh_l1 == 0).double().mean()) < 0.7


@only_in_stress
def test_shrinking_in_training_cuts_weights_gates_and_the_optimizers_state():
    torch.manual_seed(0)
    model, x = Tagger(nn.LSTM), tokens()
    vbdrop.convert_(model, Units(), Weights(), example_inputs=x)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        (sum(out.square().sum() for out in model(x)) + vbdrop.kl(model)).backward()
        optimizer.step()

    step()
    kill_(model).eval()
    expected, whole = [out.clone() for out in model(x)], copy.deepcopy(model)
    plan = vbdrop.compress(model, x, rewrite=False).plan
    apply_plan_(plan, model, optimizer)
    for found, wanted in zip(model(x), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert all(optimizer.state[p]["exp_avg"].shape == p.shape for p in model.parameters() if p in optimizer.state)
    assert model.rnn.log_sigma2_hh_l1.shape == model.rnn.weight_hh_l1.shape
    restored = restore_(whole, plan, model.state_dict())
    for found, wanted in zip(restored(x), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    model.train()
    step()
    again = vbdrop.compress(model.eval(), x)
    assert_same(model, again.model, x)
    assert type(again.model.rnn) in UNEQUAL.values()
    vbdrop.deterministic_(model)
    assert_same(again.model, model, x)


def test_a_tied_decoder_is_left_with_a_reason():
    torch.manual_seed(0)

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.rnn = nn.Embedding(WORDS, DIM), nn.GRU(DIM, DIM, batch_first=True)
            self.decode = nn.Linear(DIM, WORDS, bias=False)
            self.decode.weight = self.embedding.weight

        def forward(self, tokens):
            return (self.decode(self.rnn(self.embedding(tokens))[0]),)

    model, x = Language(), tokens()
    report = vbdrop.convert_(model, Units(), example_inputs=x)
    assert report.left["decode"] == "its parameters are shared with another module"
    kill_(model).eval()
    assert_same(model, vbdrop.compress(model, x).model, x)


def test_a_bag_of_embeddings_is_left_with_a_reason():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag, self.head = nn.EmbeddingBag(WORDS, DIM), nn.Linear(DIM, 3)

        def forward(self, tokens):
            return (self.head(self.bag(tokens)),)

    model, x = Bag(), tokens()
    report = vbdrop.convert_(model, Units(), example_inputs=x)
    assert report.left["bag"].startswith("it sums rows that it looks up")
    kill_(model).eval()
    small = vbdrop.compress(model, x)
    assert_same(model, small.model, x)


def test_features_of_an_embedding_go_and_rows_stay():
    torch.manual_seed(0)

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, DIM), nn.Embedding(7, DIM)
            self.first, self.second = nn.Linear(DIM, 4), nn.Linear(DIM, 3)

        def forward(self, tokens):
            x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
            return self.first(x), self.second(x)

    model, x = Words(), tokens()
    report = vbdrop.convert_(model, Units(), example_inputs=x)
    (group,) = report.groups[0].groups
    assert (group.name, group.units, group.readers) == ("words", DIM, ["first", "second"])
    assert group.weights == WORDS + 7 + 4 + 3
    kill_(model, 0.0)
    next(m for n, m in model.named_modules() if n.endswith("_channels")).log_sigma2.data[[1, 4]] = 5.0
    small = vbdrop.compress(model.eval(), x).model
    assert_same(model, small, x)
    assert (small.words.weight.shape, small.places.weight.shape) == ((WORDS, DIM - 2), (7, DIM - 2))


@only_in_stress
def test_export_to_onnx(tmp_path: pathlib.Path):
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model, x = Tagger(nn.GRU), tokens()
    vbdrop.convert_(model, Units(), example_inputs=x)
    kill_(model).eval()
    small = vbdrop.compress(model, x)
    assert type(small.model.rnn) in UNEQUAL.values()
    vbdrop.export(small, tmp_path / "small.onnx")
    with pytest.raises(vbdrop.exporting.ExportError, match="the C writer cannot write the operation"):
        vbdrop.export(small, tmp_path / "small.c")
