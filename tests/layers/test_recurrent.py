"""What recurrent layers must do in every mode: the contract of the other layers, for layers of several steps."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import vbdrop
from vbdrop.layers import LAYERS, Gate, Units, Variational, Weights
from vbdrop.layers.companions import companion, weight_names

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

LAYERS_OF_ALL_KINDS = {
    "lstm": lambda: nn.LSTM(3, 4),
    "lstm-deep": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
    "lstm-projected": lambda: nn.LSTM(3, 5, num_layers=2, bidirectional=True, proj_size=2),
    "gru-deep": lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True),
    "gru-plain": lambda: nn.GRU(3, 4, num_layers=2, bias=False, batch_first=True),
    "rnn": lambda: nn.RNN(3, 4, num_layers=2, nonlinearity="relu"),
}


@pytest.fixture(params=LAYERS_OF_ALL_KINDS)
def plain(request):
    return LAYERS_OF_ALL_KINDS[request.param]()


@pytest.fixture
def x():
    return torch.randn(5, 6, 3)


def noisy_tensors(layer):
    return [entry for module in layer.modules() if isinstance(module, Variational) for entry in module.variational()]


def states(layer, result):
    return [result[0], *(result[1] if isinstance(layer, nn.LSTM) else [result[1]])]


@torch.no_grad()
def randomise(layer):
    """Random means and rates, of which about a third is dead."""
    for entry in noisy_tensors(layer):
        entry.mean.uniform_(0.3, 1.2).mul_(torch.where(torch.rand_like(entry.mean) < 0.5, -1.0, 1.0))
        if entry.threshold is None:
            entry.rate.uniform_(-2, 0)
            continue
        dead = torch.rand_like(entry.mean) < 0.3
        dead.view(-1)[:2] = torch.tensor([True, False])
        entry.rate.copy_(entry.mean.square().log() + entry.threshold + torch.where(dead, 1.0, -3.0))
    return layer


def plain_weights(layer):
    """What the masks and gates of a layer leave of its weights, by the definition of log_alpha."""
    found = {}
    for name in weight_names(layer):
        weight = getattr(layer, name).detach().clone()
        for entry in layer.variational():
            if entry.name == name and entry.threshold is not None:
                weight[entry.log_alpha_full() >= entry.threshold] = 0.0
        gate = layer._modules.get(companion(name, "gate"))
        if gate is not None:
            values = torch.cat(
                [
                    torch.where(g.log_sigma2 - g.weight.square().log() >= g.mode.threshold, 0.0, g.weight)
                    for g in gate.all_gates
                ]
            )
            weight = weight * values[gate.index]
        found[name] = weight.detach()
    return found


def test_a_fresh_layer_is_the_plain_one_in_eval(plain, noisy, modes, x):
    layer = noisy(plain, *modes).eval()
    for found, expected in zip(states(plain, layer(x)), states(plain, plain.eval()(x)), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_eval_is_the_plain_layer_with_masked_and_gated_weights(plain, noisy, modes, x):
    layer = randomise(noisy(plain, *modes)).eval()
    reference = copy.deepcopy(plain).eval()
    reference.load_state_dict({name: getattr(layer, name).detach() for name in reference.state_dict()})
    with torch.no_grad():
        for name, weight in plain_weights(layer).items():
            getattr(reference, name).copy_(weight)
    for found, expected in zip(states(plain, layer(x)), states(plain, reference(x)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    layer.make_plain_()
    layer.__class__ = type(plain)
    for found, expected in zip(states(plain, layer(x)), states(plain, reference(x)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert list(layer.state_dict()) == list(plain.state_dict())
    assert vars(layer).keys() == vars(plain).keys()


def test_weights_are_drawn_with_the_moments_of_their_posterior(noisy):
    """5,000 draws of one matrix; mean and variance within 5 standard errors."""
    torch.manual_seed(0)
    n = 5_000
    layer = randomise(noisy(nn.GRU(2, 2, bias=False), Weights(threshold=1.0), Units())).train()
    gate = layer.gate_hh_l0
    draws = torch.stack([layer._drawn("weight_hh_l0") for _ in range(n)]).detach().double()
    w, s = layer.weight_hh_l0.detach().double(), layer.log_sigma2_hh_l0.detach().double().exp()
    w = torch.where(s >= w**2 * torch.e, 0.0, w)  # the means of dead weights are masked in training, too
    (g,) = gate.all_gates
    z, v = g.weight.detach().double(), g.log_sigma2.detach().double().exp()
    mean, variance = w * z, s * (z**2 + v) + w**2 * v
    assert ((draws.mean(0) - mean).abs() <= 5 * (variance / n).sqrt() + 1e-6).all()
    centred = (draws - draws.mean(0)).square()
    error = ((centred.square().mean(0) - centred.mean(0) ** 2) / n).sqrt()
    assert ((centred.mean(0) - variance).abs() <= 5 * error + 1e-8).all()


def test_one_draw_serves_all_steps_and_sequences(noisy):
    """Two equal sequences get equal outputs, and a step that repeats the one before leaves the state where it is."""
    layer = noisy(nn.RNN(2, 3), Weights(log_sigma2=-2.0)).train()
    out, _ = layer(torch.ones(40, 2, 2))
    assert torch.equal(out[:, 0], out[:, 1])
    again, _ = layer(torch.ones(40, 2, 2))
    assert not torch.equal(out, again)
    with torch.no_grad():
        layer.weight_hh_l0.mul_(0.1)
        layer.log_sigma2_hh_l0.fill_(-20.0)
    out, _ = layer(torch.ones(40, 1, 2))
    torch.testing.assert_close(out[-1], out[-2], rtol=0, atol=1e-5)


def test_noise_in_training_and_in_sampled_eval_alone(plain, noisy, modes, x):
    layer = randomise(noisy(plain, *modes))
    assert not torch.equal(layer.train()(x)[0], layer(x)[0])
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])
    with vbdrop.sampling(layer):
        assert not torch.equal(layer(x)[0], layer(x)[0])


def test_every_parameter_gets_a_finite_gradient(plain, noisy, modes, x):
    for dtype in (torch.float32, torch.float64):
        layer = randomise(noisy(plain, *modes)).to(dtype).train()
        loss = sum(state.square().sum() for state in states(plain, layer(x.to(dtype))))
        (loss + sum(entry.kl() for entry in noisy_tensors(layer))).backward()
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())
        assert {p.dtype for p in layer.parameters()} == {dtype}


def test_bfloat16_keeps_the_rates_wide(plain, noisy, modes):
    layer = noisy(plain, *modes).to(torch.bfloat16)
    narrow = {name for name, p in layer.named_parameters() if p.dtype == torch.bfloat16}
    assert narrow == set(plain.state_dict())
    assert layer(torch.randn(5, 6, 3, dtype=torch.bfloat16))[0].dtype == torch.bfloat16


def test_the_kl_is_over_all_matrices_and_no_bias(plain, noisy):
    layer = noisy(plain, Weights())
    assert {entry.name for entry in layer.variational()} == {n for n in plain.state_dict() if n.startswith("weight")}
    assert vbdrop.kl(layer) > 0
    assert set(vbdrop.rates(layer)) == {entry.name for entry in layer.variational()}


def test_one_gate_per_hidden_unit_shared_by_all_that_read_it(noisy):
    layer = noisy(nn.LSTM(3, 4, num_layers=2, bidirectional=True), Units())
    gates = [module for module in layer.modules() if isinstance(module, Gate)]
    assert sorted(gate.weight.numel() for gate in gates) == [3, 4, 4, 4, 4]
    first, second = layer.gate_hh_l0, layer.gate_hh_l0_reverse
    for reader in (layer.gate_ih_l1, layer.gate_ih_l1_reverse):
        assert reader.all_gates == (first.all_gates[0], second.all_gates[0])
    assert layer.gate_ih_l0.all_gates == layer.gate_ih_l0_reverse.all_gates


def test_packed_sequences_and_given_states(plain, noisy, modes):
    layer = randomise(noisy(plain, *modes)).eval()
    reference = copy.deepcopy(layer)
    reference.make_plain_()
    reference.__class__ = type(plain)
    x, lengths = torch.randn(4, 6, 3), torch.tensor([2, 6, 1, 4])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    found, expected = layer(packed), reference(packed)
    for a, b in zip(states(plain, expected)[1:], states(plain, found)[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pad_packed_sequence(found[0])[0], pad_packed_sequence(expected[0])[0])
    given = torch.randn(5, 6, 3)
    start = reference(given)[1]
    for a, b in zip(states(plain, layer(given, start)), states(plain, reference(given, start)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    single = torch.randn(5, 3)
    for a, b in zip(states(plain, layer(single)), states(plain, reference(single)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_inputs_that_do_not_fit_are_refused(noisy):
    layer = noisy(nn.GRU(3, 4), Weights())
    with pytest.raises(ValueError, match="`input` must have 3 features; got 2"):
        layer(torch.randn(5, 6, 2))
    with pytest.raises(ValueError, match="`input` must have 2 axes, or 3 with a batch; got 1"):
        layer(torch.randn(3))
    with pytest.raises(ValueError, match=r"`hx` must have 6 states of \(4,\) units"):
        layer(torch.randn(5, 6, 3), torch.zeros(1, 5, 4))


def test_dropout_between_layers_is_torchs(noisy):
    plain = nn.GRU(3, 4, num_layers=2, dropout=0.5)
    layer = noisy(plain, Weights(log_sigma2=-60.0)).train()
    x = torch.randn(5, 6, 3)
    torch.manual_seed(1)
    _ = [layer._drawn(name) for name in layer.matrices]
    expected = plain.train()(x)[0]
    torch.manual_seed(1)
    torch.testing.assert_close(layer(x)[0], expected)


def test_a_state_dict_goes_round_and_copies_are_alike(plain, noisy, modes, x):
    layer = randomise(noisy(plain, *modes))
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = noisy(plain, *modes)
    other.load_state_dict(torch.load(file, weights_only=True))
    for copied in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.manual_seed(3)
        expected = layer(x)[0]
        torch.manual_seed(3)
        assert torch.equal(copied(x)[0], expected)
        assert not {p.data_ptr() for p in layer.parameters()} & {p.data_ptr() for p in copied.parameters()}


def test_a_plain_state_dict_starts_the_rates_afresh(plain, noisy, modes):
    layer, fresh = randomise(noisy(plain, *modes)), noisy(plain, *modes)
    layer.load_state_dict(plain.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), fresh.parameters(), strict=True))


def test_freezing_holds_for_every_matrix(plain, noisy, modes, x):
    layer = randomise(noisy(plain, *modes)).eval()
    expected = layer(x)[0]
    vbdrop.freeze_dead_(layer)
    with torch.no_grad():
        for entry in noisy_tensors(layer):
            if entry.removed is not None:
                entry.mean.masked_fill_(entry.removed, 7.0)
                entry.rate.masked_fill_(entry.removed, -9.0)
    torch.testing.assert_close(layer(x)[0], expected)
    other = noisy(plain, *modes)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other.eval()(x)[0], expected)


def test_predict_draws_the_weights_anew_for_every_sample(noisy):
    """The spread over 200 samples is that of 200 forwards, to a factor of two."""
    torch.manual_seed(0)

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 4, batch_first=True)

        def forward(self, x):
            return self.rnn(x)[0][:, -1]

    model, x = Last(), torch.randn(2, 6, 3)
    vbdrop.convert_(model, Weights(log_sigma2=-3.0))
    found = vbdrop.predict(model.eval(), x, samples=200)
    with vbdrop.sampling(model), torch.no_grad():
        spread = torch.stack([model(x).softmax(-1) for _ in range(200)]).std(0)
    assert ((found.std / spread) > 0.5).all()
    assert ((found.std / spread) < 2).all()


def test_an_attached_elbo_adds_the_kl_of_every_matrix(noisy):
    x, layer = torch.randn(5, 2, 3), noisy(nn.GRU(3, 4), Weights(), Units()).train()
    gradients = []
    for attached in (True, False):
        model = copy.deepcopy(layer)
        optimizer = torch.optim.SGD(vbdrop.param_groups(model), lr=0.0)
        elbo = vbdrop.ELBO(model, n_train=10)
        if attached:
            elbo.attach(optimizer)
        torch.manual_seed(2)
        nll = model(x)[0].square().mean()
        (nll if attached else elbo(nll)).backward()
        optimizer.step()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*gradients)
    rates = optimizer.param_groups[-1]["params"]
    assert {id(rate) for rate in rates} >= {id(entry.rate) for entry in noisy_tensors(model)}


def test_moments_have_no_rule_for_it(noisy):
    model = nn.Sequential(noisy(nn.GRU(3, 4), Weights())).eval()
    with pytest.raises(TypeError, match="no rule for the forward of GRU"):
        vbdrop.predict(model, torch.randn(5, 2, 3), method="moments")


def test_every_recurrent_layer_of_the_table_is_tested():
    kinds = {type(make()) for make in LAYERS_OF_ALL_KINDS.values()}
    assert kinds == {kind for kind in LAYERS if issubclass(kind, nn.RNNBase)}
