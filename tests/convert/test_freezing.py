"""What is dead at the start of the last stage has neither mean nor noise, and nothing brings it back."""

import copy

import pytest
import torch
from tests.trained import above
from torch import nn
from torch.nn.functional import cross_entropy

import vbdrop
from vbdrop.data import digits
from vbdrop.layers import LAYERS, NoisyTensor, Variational
from vbdrop.methods import VBDWeights
from vbdrop.objective import noisy_tensors
from vbdrop.priors import as_prior
from vbdrop.train.shrinking import Shrinking

both_modes = pytest.mark.parametrize("mode", [vbdrop.Weights(), vbdrop.Units()], ids=["weights", "units"])
prior = pytest.mark.parametrize("prior", ["hierarchical", "log_uniform", "inverse_gamma"])


def half_dead(mode):
    """A layer in which every other weight or gate is dead."""
    model = nn.Sequential(nn.Linear(6, 5, bias=False))
    vbdrop.convert_(model, mode)
    with torch.no_grad():
        entry_of(model).log_sigma2[..., ::2] = 9.0
    return model


def entry_of(model):
    ((_, entry),) = noisy_tensors(model)
    return entry


def revive_(model):
    """What an optimizer might do to the parameters of the dead."""
    with torch.no_grad():
        entry_of(model).mean.add_(1.0)
        entry_of(model).log_sigma2.fill_(-9.0)


@both_modes
@pytest.mark.parametrize("fused", [True, False])
def test_the_dead_have_no_part_in_any_forward(mode, fused):
    model = half_dead(mode)
    (model[0].gate if mode == vbdrop.Units() else model[0]).fused = fused
    dead, alive = torch.eye(6)[::2], torch.eye(6)[1::2]
    assert model(dead).std() > 1
    assert vbdrop.freeze_dead_(model) is model
    for _ in range(2):
        assert model.train()(dead).abs().max() < 1e-14  # the sampled variance has a floor
        assert not torch.equal(model(alive), model(alive))
        assert not model.eval()(dead).any()
        with vbdrop.sampling(model):
            assert model(dead).abs().max() < 1e-14
        assert model(alive).any()
        revive_(model)


@both_modes
def test_the_dead_are_dead_at_every_threshold_and_in_the_plain_model(mode):
    model = half_dead(mode)
    before = entry_of(model).dead()
    vbdrop.freeze_dead_(model)
    revive_(model)
    for threshold in (None, 5.0, 50.0):
        assert torch.equal(entry_of(model).dead(threshold), before)
    assert vbdrop.rates(model)["0.gate" if mode == vbdrop.Units() else "0"].dead == int(before.sum())
    plain = vbdrop.deterministic_(model)
    assert not plain[0].weight[:, ::2].any()
    assert plain[0].weight[:, 1::2].all()
    assert list(plain.state_dict()) == ["0.weight"]


@both_modes
@prior
def test_they_add_nothing_to_the_kl(mode, prior):
    model = half_dead(type(mode)(prior=prior))
    vbdrop.freeze_dead_(model)
    revive_(model)
    entry = entry_of(model)
    alive = entry.prior.kl(entry.mean, entry.log_sigma2)[~entry.dead()]
    kl = vbdrop.kl(model)
    assert kl.item() == pytest.approx(alive.sum().item(), rel=1e-4)
    kl.backward()
    for parameter in (entry.mean, entry.log_sigma2):
        assert not parameter.grad[entry.removed].any()
        assert parameter.grad[~entry.removed].all()


@both_modes
def test_what_an_optimizer_remembers_of_them_changes_nothing(mode):
    model = half_dead(mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for step in range(4):
        if step == 2:  # the moments of the dead are not zero by now
            vbdrop.freeze_dead_(model)
            dead, kept = entry_of(model).dead(), entry_of(model).mean.detach().clone()
        optimizer.zero_grad()
        model(torch.ones(3, 6)).square().sum().backward()
        optimizer.step()
    assert torch.equal(entry_of(model).removed, dead)
    if mode == vbdrop.Units():
        assert (entry_of(model).mean[dead] != 0).any(), "the optimizer moved their parameters"
    assert torch.equal(entry_of(model).dead(), dead)
    assert not model.eval()(torch.eye(6)[::2]).any()
    assert (entry_of(model).mean != kept)[~dead].all()


@both_modes
def test_a_state_dict_carries_the_marks_and_an_older_one_takes_them_away(mode):
    fresh = half_dead(mode)
    older = copy.deepcopy(fresh.state_dict())
    frozen = vbdrop.freeze_dead_(copy.deepcopy(fresh))
    revive_(frozen)
    fresh.load_state_dict(frozen.state_dict())
    assert torch.equal(entry_of(fresh).dead(), entry_of(frozen).dead())
    assert torch.equal(fresh.eval()(torch.eye(6)), frozen.eval()(torch.eye(6)))
    fresh.load_state_dict(older)
    revive_(fresh)
    assert not entry_of(fresh).dead().any()
    assert "removed" not in str(list(fresh.state_dict()))


def test_a_plain_state_dict_starts_gates_afresh():
    model = vbdrop.freeze_dead_(half_dead(vbdrop.Units()))
    model.load_state_dict({"0.weight": torch.ones(5, 6)})
    assert not entry_of(model).dead().any()


@both_modes
def test_a_second_call_adds_to_the_first(mode):
    model = vbdrop.freeze_dead_(half_dead(mode))
    revive_(model)
    with torch.no_grad():
        entry_of(model).log_sigma2[..., 1] = 9.0
    vbdrop.freeze_dead_(model)
    revive_(model)
    assert entry_of(model).dead()[..., [0, 1, 2, 4]].all()
    assert not entry_of(model).dead()[..., [3, 5]].any()


def test_a_threshold_can_be_given():
    model = nn.Sequential(nn.Linear(4, 1, bias=False))
    vbdrop.convert_(model, vbdrop.Weights())
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].log_sigma2.copy_(torch.tensor([[-9.0, 0.0, 2.0, 4.0]]))
    assert vbdrop.freeze_dead_(model, threshold=1.0)[0].removed.tolist() == [[False, False, True, True]]


@pytest.mark.parametrize("threshold", ["x", float("nan"), True, [1.0]])
def test_a_threshold_that_is_no_number_is_named(threshold):
    model = nn.Sequential(nn.Linear(4, 2))
    vbdrop.convert_(model, vbdrop.Weights())
    with pytest.raises(ValueError, match="`threshold` must be a number"):
        vbdrop.freeze_dead_(model, threshold)
    vbdrop.freeze_dead_(model, float("inf"))


def test_nothing_dies_where_rates_are_shared_and_a_plain_model_is_refused():
    model = nn.Sequential(nn.Linear(4, 2))
    with pytest.raises(ValueError, match="`model` has no converted layer"):
        vbdrop.freeze_dead_(model)
    vbdrop.convert_(model, vbdrop.Rates())
    before = list(model.state_dict())
    vbdrop.freeze_dead_(model)
    assert list(model.state_dict()) == before


def test_a_class_that_may_not_keep_its_dead_is_refused_before_anything_changes():
    class Scale(Variational):
        def __init__(self):
            super().__init__()
            self.weight, self.log_sigma2 = nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 9.0))

        def variational(self):
            yield NoisyTensor("weight", self.weight, as_prior("hierarchical"), 0.0, self.log_sigma2)

    model = nn.Sequential(half_dead(vbdrop.Weights()), Scale())
    with pytest.raises(TypeError, match="'1' is a Scale, which may not"):
        vbdrop.freeze_dead_(model)
    assert "removed" not in str(list(model.state_dict()))


RECURRENT = [kind for kind in LAYERS if issubclass(kind, nn.RNNBase)]


@pytest.mark.parametrize("kind", RECURRENT, ids=lambda kind: kind.__name__)
def test_every_recurrent_layer_keeps_its_dead(kind):
    layer, x = kind(5, 4), torch.randn(3, 2, 5)
    vbdrop.convert_(layer, vbdrop.Weights())
    with torch.no_grad():
        for _, entry in noisy_tensors(layer):
            entry.log_sigma2[1] = 9.0
    expected = copy.deepcopy(layer).eval()(x)[0]
    vbdrop.freeze_dead_(layer)
    with torch.no_grad():
        for _, entry in noisy_tensors(layer):
            assert entry.removed[1].all()
            entry.mean[entry.removed] = 3.0
            entry.log_sigma2[entry.removed] = -9.0
    torch.testing.assert_close(layer.eval()(x)[0], expected)
    torch.testing.assert_close(vbdrop.deterministic_(layer)(x)[0], expected)


@pytest.mark.parametrize("kind", [kind for kind in LAYERS if kind not in RECURRENT], ids=lambda kind: kind.__name__)
def test_every_kind_of_layer_keeps_its_dead(kind):
    linear = issubclass(kind, nn.Linear)
    layer = kind(8, 6) if linear else kind(8, 6, 3)
    dims = layer.weight.dim() - 2
    model = nn.Sequential(nn.Identity() if linear else kind(8, 8, 3, padding=1), layer)
    vbdrop.convert_(model, vbdrop.Weights(), vbdrop.Units(outputs=lambda module, name: True))
    x = torch.randn(2, 8, *[5] * dims)
    with torch.no_grad():
        layer.log_sigma2[1] = 9.0
        layer.gate.log_sigma2[:2] = layer.output_gate.log_sigma2[:2] = 9.0
    expected = copy.deepcopy(layer).eval()(x)
    vbdrop.freeze_dead_(layer)
    with torch.no_grad():
        for _, entry in noisy_tensors(layer):
            entry.mean[entry.removed] = 3.0
            entry.log_sigma2[entry.removed] = -9.0
    torch.testing.assert_close(layer.eval()(x), expected)
    torch.testing.assert_close(vbdrop.deterministic_(layer)(x), expected)


@both_modes
def test_a_plan_cuts_the_marks_with_the_weights(mode):
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    vbdrop.convert_(model, mode)
    with torch.no_grad():
        for _, entry in noisy_tensors(model):
            entry.log_sigma2[..., 0] = 9.0
        if mode == vbdrop.Weights():
            model[2].log_sigma2[:, 1] = 9.0
    vbdrop.freeze_dead_(model)
    for _, entry in noisy_tensors(model):
        revived = entry.removed
        with torch.no_grad():
            entry.mean[revived], entry.log_sigma2[revived] = 2.0, -9.0
    x = torch.randn(4, 5)
    expected = model.eval()(x)
    plan = vbdrop.compress(model, x, rewrite=False).plan
    vbdrop.apply_plan_(plan, model)
    assert model[2].weight.shape[1] < 6
    for _, entry in noisy_tensors(model):
        assert entry.removed.shape == entry.mean.shape
    torch.testing.assert_close(model(x), expected)


def test_weights_that_carry_a_merged_constant_are_not_taken_for_dead():
    """A padded convolution cannot fold the constant of a dead channel into its bias: another channel carries it."""
    method = VBDWeights(refine=0.5, pretrain=0.0)
    layers = nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1), nn.Flatten(), nn.Linear(144, 3)
    model, x = method.build(nn.Sequential(*layers)), torch.randn(8, 1, 6, 6)
    optimizer = torch.optim.Adam(method.groups(model, 1e-3), lr=1e-3)
    shrinking = Shrinking(method, model, x)
    with torch.no_grad():
        model[0].bias.abs_().add_(0.5)
        model[0].log_sigma2[1:4] = 10.0  # three channels are constants
        model[2].log_sigma2[[0, 1, 2], [1, 2, 3]] = 10.0  # and some of the weights on them are dead
    vbdrop.freeze_dead_(model)
    before = model.eval()(x)
    for _ in range(2):
        shrinking.check_(model, optimizer)
    assert model[2].weight.shape == (4, 4, 3, 3)
    torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(shrinking.whole(model).eval()(x), before, rtol=1e-5, atol=1e-6)


@pytest.mark.trained
@pytest.mark.parametrize("freeze", [True, False])
def test_gates_that_die_under_the_kl_stay_dead_without_it(freeze):
    """Two stages on real digits. Without the call gates come back, which is why it is there."""
    data = digits()
    images, labels = data.train_images[:2000].flatten(1), data.train_labels[:2000]
    model = nn.Sequential(nn.Linear(784, 60), nn.ReLU(), nn.Linear(60, 10))
    vbdrop.convert_(model, vbdrop.Units())
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=2e-3, rate_lr=0.05))
    elbo = vbdrop.ELBO(model, n_train=2000, kl_weight=0.7)
    dead = []
    for epoch in range(10):
        if epoch == 6:
            elbo.kl_weight = 0.0
            if freeze:
                vbdrop.freeze_dead_(model)
        for batch in torch.randperm(2000).split(50):
            optimizer.zero_grad()
            elbo(cross_entropy(model(images[batch]), labels[batch])).backward()
            optimizer.step()
        dead.append(vbdrop.rates(model)["0.gate"].dead)
    if freeze:
        assert dead[-1] >= dead[5]
    else:
        above(10, dead[5] - dead[-1], mean=254.0, sd=12.0)
