"""What sparse VD and VBD on weights share: the settings reach the layers, and the penalty makes them sparse."""

import copy

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.compression.evidence import lost_nats
from vbdrop.methods import SparseVD, VBDWeights
from vbdrop.models import LeNet5
from vbdrop.objective import noisy_tensors
from vbdrop.train.method import Batch, Step
from vbdrop.train.shrinking import check_shrinks
from vbdrop.train.sparsity import sparsity, weight_layers

both = pytest.mark.parametrize("kind", [SparseVD, VBDWeights])


@both
def test_the_settings_reach_the_layers_and_the_optimizer(kind):
    method = kind(threshold=1.0, log_sigma2=-7.0, rate_lr=5.0)
    model = method.build(nn.Linear(4, 2))
    nn.init.ones_(model.weight)
    assert model.noise.threshold == 1.0
    assert model.log_sigma2.max().item() <= -7.0
    assert [group["lr"] for group in method.groups(model, 0.1)] == [0.1, 0.5]


@both
def test_the_penalty_makes_the_network_sparse(task, kind):
    method = kind()
    plain = method.finish(task.fit(method, epochs=10))
    assert sparsity(plain).ratio > 6
    assert task.error(plain) < 20


@both
@pytest.mark.parametrize(("cut", "limit"), [(None, 0.5), (-0.25, -0.25), (2.0, 0.5)])
def test_dead_weights_are_those_above_the_threshold_or_in_the_end_above_the_lower_cut(kind, cut, limit):
    method = kind(threshold=0.5, cut=cut)
    model = method.build(nn.Linear(30, 20))
    with torch.no_grad():
        model.log_sigma2.copy_(torch.randn(20, 30) - 7)
    (entry,) = model.variational()
    log_alpha = entry.log_alpha_full()
    assert ((log_alpha >= -0.25) & (log_alpha < 0.5)).any()
    assert torch.equal(method.in_training(copy.deepcopy(model)).weight == 0, log_alpha >= 0.5)
    assert torch.equal(method.finish(copy.deepcopy(model)).weight == 0, log_alpha >= limit)
    start = Step(59, 100, 5.9, 10, 1_000)
    kind(threshold=0.5, cut=cut, pretrain=0.0, refine=0.4).after_step(model, start)
    assert torch.equal(model.weight == 0, log_alpha >= limit)


def test_a_cut_is_a_number():
    with pytest.raises(TypeError, match="`cut` of VBDWeights must be a finite number; got 'low'"):
        VBDWeights(cut="low")
    with pytest.raises(TypeError, match="`threshold` of SparseVD must be a finite number; got nan"):
        SparseVD(threshold=float("nan"))


def test_the_two_differ_in_their_prior_alone():
    torch.manual_seed(0)
    vd, vbd = (kind().build(nn.Linear(4, 2)) for kind in (SparseVD, VBDWeights))
    assert {type(vd.noise.prior).__name__, type(vbd.noise.prior).__name__} == {"LogUniform", "Hierarchical"}
    vbd.load_state_dict(vd.state_dict())
    assert vbdrop.kl(vd).item() > vbdrop.kl(vbd).item()


@both
def test_a_run_ends_with_the_average_of_its_last_steps(task, kind):
    plain, averaged = [], []
    settings = {"kl_weight": 0.5, "refine": 0.2}
    last = task.fit(kind(**settings), epochs=4, watch=lambda m, s: plain.append(copy.deepcopy(m.state_dict())))
    method = kind(**settings, average=0.25)
    model = task.fit(method, epochs=4, watch=lambda m, s: averaged.append(copy.deepcopy(m.state_dict())))
    assert all(torch.equal(averaged[-2][key], value) for key, value in plain[-2].items()), "it disturbs the training"
    steps = plain[-round(0.25 * len(plain)) :]
    for name, parameter in model.named_parameters():
        expected = plain[-1][name]
        if not name.endswith("log_sigma2"):
            expected = torch.stack([state[name] for state in steps]).mean(0)
        if name.endswith("weight"):
            (entry,) = last.get_submodule(name.removesuffix(".weight")).variational()
            expected = torch.where(entry.dead(), plain[-1][name], expected)
        torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)
    finished = method.finish(copy.deepcopy(model))
    assert finished.state_dict().keys() == task.network().state_dict().keys()
    assert task.error(finished) < task.error(kind(**settings).finish(last)) + 3


def test_averages_and_shrinking_do_not_go_together():
    check_shrinks(VBDWeights(), 1)
    with pytest.raises(ValueError, match="`shrink_every` must be None for VBDWeights: with these settings"):
        check_shrinks(VBDWeights(average=0.1), 1)


@both
def test_the_initial_weights_are_scaled_before_their_variances_start(kind):
    plain = LeNet5()
    model = kind(initial_scale=0.01).build(copy.deepcopy(plain))
    for name, layer in weight_layers(model):
        before = plain.get_submodule(name)
        assert torch.equal(layer.weight, 0.01 * before.weight)
        assert torch.equal(layer.bias, before.bias)
        (entry,) = layer.variational()
        assert not entry.dead().any()
    with pytest.raises(ValueError, match=r"`initial_scale` of .* must be above 0; got 0"):
        kind(initial_scale=0)


@both
def test_gates_beside_the_weights_have_a_penalty_of_their_own(kind):
    torch.manual_seed(0)
    model = kind(unit_kl=3.0, pretrain=0.0).build(LeNet5())
    rows = vbdrop.rates(model)
    counts = {name: row.count for name, row in rows.items() if name.endswith("gate")}
    assert counts == {"conv2.gate": 20, "conv2.output_gate": 50, "fc1.gate": 800, "fc2.gate": 500}
    assert {entry.threshold for _, entry in noisy_tensors(model)} == {3.0}
    batch, late = Batch(torch.rand(2, 1, 28, 28), torch.tensor([0, 1])), Step(90, 100, 9.0, 10, 1_000)
    losses = {}
    for kl_weight, unit_kl in ((0.0, 1e-9), (2.0, 1e-9), (0.0, 3.0)):
        torch.manual_seed(1)
        losses[kl_weight, unit_kl] = (
            kind(kl_weight=kl_weight, unit_kl=unit_kl, refine=0.0).loss(model, batch, late).item()
        )
    of = {name: entry.kl().item() for name, entry in noisy_tensors(model)}
    nll, weights, gates = losses.values()
    assert weights - nll == pytest.approx(sum(of[name] for name in of if name not in counts) * 2 / 1_000, rel=1e-3)
    assert gates - nll == pytest.approx(sum(of[name] for name in counts) * 3 / 1_000, rel=1e-3)


def test_dead_gates_take_whole_units_out_of_the_count(task):
    method = VBDWeights(kl_weight=0.3, unit_kl=10.0, rate_lr=3.0)
    model = task.fit(method, epochs=8)
    kept, dead_gates = 0, 0
    for _, layer in weight_layers(model):
        (weights,), (gates,) = layer.variational(), layer.gate.variational()
        dead_gates += int(gates.dead().sum())
        kept += int((~weights.dead() & ~gates.dead()).sum())
    assert dead_gates > 50
    finished = method.finish(copy.deepcopy(model))
    assert sparsity(finished).kept == kept < sum(row.count - row.dead for row in vbdrop.rates(model).values())
    assert task.error(finished) < 25


def test_a_dead_weight_of_a_convolution_can_lose_its_variance_too():
    """Then the likelihood does not move it any more; in a linear layer it does."""
    batch = Batch(torch.rand(8, 1, 28, 28), torch.arange(8))
    step = Step(index=50, steps=100, epoch=5.0, epochs=10, n_train=8)
    for mask_variances in (False, True):
        method = VBDWeights(kl_weight=0.0, pretrain=0.0, refine=0.0, mask_variances=mask_variances)
        torch.manual_seed(0)
        model = method.build(LeNet5()).train()
        with torch.no_grad():
            for layer in (model.conv1, model.fc1):
                layer.log_sigma2.flatten()[:5] = 9.0
        method.loss(model, batch, step).backward()
        dead_conv, dead_linear = (layer.log_sigma2.grad.flatten()[:5] for layer in (model.conv1, model.fc1))
        assert bool((dead_conv != 0).any()) is not mask_variances
        assert bool((dead_linear != 0).any())
        assert bool((model.conv1.log_sigma2.grad.flatten()[5:] != 0).any())


@both
def test_the_cut_by_the_evidence_takes_what_costs_no_more_than_allowed(kind):
    method = kind(kl_weight=2.0, pretrain=0.0, refine=0.4, cut_nats=0.01)
    model = method.build(nn.Linear(30, 20))
    with torch.no_grad():
        model.log_sigma2.copy_(2 * torch.randn(20, 30) - 7)
    (entry,) = model.variational()
    log_alpha = entry.log_alpha_full().detach()
    method.after_step(model, Step(59, 100, 5.9, 10, 1_000))
    gone = model.weight == 0
    assert gone.sum() > (log_alpha >= 3).sum()
    assert log_alpha[gone].min() > log_alpha[~gone].max()
    cost = lost_nats(log_alpha[gone]).sum() * 2.0 / 1_000
    next_one = lost_nats(log_alpha[~gone].max()) * 2.0 / 1_000
    assert cost <= 0.01 < cost + next_one


def test_two_rules_for_one_cut_are_refused():
    with pytest.raises(ValueError, match="`cut` and `cut_nats` of VBDWeights both set the final threshold"):
        VBDWeights(cut=-1.0, cut_nats=0.01)


@both
def test_the_teacher_is_the_plain_network_and_leaves_no_trace(task, kind):
    states = []
    method = kind(kl_weight=0.5, distill=1.0)
    model = task.fit(method, epochs=4, watch=lambda m, s: states.append(copy.deepcopy(m.state_dict())))
    steps = len(states)
    at_start, later = states[round(0.2 * steps) - 1], states[-2]
    prefix = next(name for name in later if ".teacher." in name).partition("teacher.")[0] + "teacher."
    taught = {name.removeprefix(prefix): value for name, value in later.items() if name.startswith(prefix)}
    assert taught.keys() == task.network().state_dict().keys()
    for name, value in taught.items():
        assert torch.equal(value, at_start[name])
    assert not any("teacher" in name for name in model.state_dict())
    assert method.finish(model).state_dict().keys() == task.network().state_dict().keys()


@both
def test_the_teacher_pulls_the_outputs_towards_its_own(task, kind):
    step = Step(50, 100, 5.0, 10, len(task.train.targets))
    batch = Batch(task.train.inputs[:50], task.train.targets[:50])
    losses = {}
    for distill in (0.0, 2.0):
        method = kind(distill=distill, kl_weight=0.0)
        model = method.build(task.network()).train()
        with torch.no_grad():
            for _, entry in noisy_tensors(model):
                entry.mean.mul_(1.5)
        losses[distill] = method.loss(model, batch, step).item()
    with torch.no_grad():  # there is no noise before the second stage has started
        expected, own = ((network(batch.inputs) / 2).log_softmax(1) for network in (task.network(), model))
    gap = 4 * (expected.exp() * (expected - own)).sum(1).mean().item()
    assert gap > 1e-3
    assert losses[2.0] - losses[0.0] == pytest.approx(2 * gap, rel=1e-4)


def test_there_is_no_teacher_without_a_plain_network():
    with pytest.raises(ValueError, match="`distill` of VBDWeights needs a plain network to learn from"):
        VBDWeights(distill=1.0, pretrain=0.0)
    with pytest.raises(ValueError, match="`shrink_every` must be None for VBDWeights"):
        check_shrinks(VBDWeights(distill=1.0), 1)
