"""The stages of a run follow each other, on weights and on gates, and a killed run goes on in any of them."""

import copy

import pytest
import torch
from tests.stress import count
from tests.trained import above, below
from torch import nn

from vbdrop.compression.masking import masked_copy
from vbdrop.methods import METHODS
from vbdrop.methods.shared.losses import cross_entropy
from vbdrop.objective import noisy_tensors
from vbdrop.train import Budget, fit
from vbdrop.train.method import Batch, Step
from vbdrop.train.sparsity import sparsity

QUICK = {  # with which something dies in a few epochs
    "vbd-weights": {"kl_weight": 1.0},
    "sparse-vd": {"kl_weight": 1.0},
    "vbd-gates": {"kl_weight": 4.0, "gate_lr": 5.0},
}
staged = pytest.mark.parametrize("name", QUICK)


def made(name: str, **settings):
    return METHODS[name](**{"pretrain": 0.0, "refine": 0.0, **QUICK[name], **settings})


def means(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: entry.mean.detach().clone() for name, entry in noisy_tensors(model)}


def variances(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: entry.rate.detach().clone() for name, entry in noisy_tensors(model)}


def removed(model: nn.Module) -> dict[str, torch.Tensor | None]:
    return {name: None if entry.removed is None else entry.removed.clone() for name, entry in noisy_tensors(model)}


@pytest.mark.trained
@staged
def test_the_dead_stay_dead_and_the_survivors_learn_with_their_noise(task, name):
    seen = []
    method = made(name, refine=0.4)
    watch = lambda model, step: seen.append((means(model), variances(model), removed(model)))  # noqa: E731
    model = task.fit(method, epochs=8, watch=watch)
    first = round(0.6 * len(seen)) - 1
    start_means, start_variances, dead = seen[first]
    above(50, sum(int(mask.sum()) for mask in dead.values()), mean=142.0, sd=6.3)
    assert set(seen[first - 1][2].values()) == {None}
    for _, later_variances, later_removed in seen[first:]:
        for key, mask in dead.items():
            assert torch.equal(later_removed[key], mask)
            assert torch.equal(later_variances[key], start_variances[key])
    assert all(bool(entry.dead()[dead[key]].all()) for key, entry in noisy_tensors(model))
    moved = min((seen[-1][0][key] != start_means[key])[~mask].float().mean().item() for key, mask in dead.items())
    above(0.9, moved, mean=1.0, sd=0.0)
    plain = method.finish(copy.deepcopy(model))
    below(65, task.error(plain), mean=26.6, sd=5.5)
    own = next(entry.threshold for _, entry in noisy_tensors(model))
    lower, at_own, higher = (sparsity(masked_copy(model, t)).kept for t in (own - 3, own, own + 20))
    assert at_own == sparsity(plain).kept
    assert lower <= at_own <= higher < sparsity(plain).weights


@staged
def test_refining_has_no_penalty(name):
    batch, step = Batch(torch.rand(3, 4), torch.tensor([0, 1, 0])), Step(90, 100, 9.0, 10, 1_000)
    torch.manual_seed(0)
    model = made(name).build(nn.Linear(4, 2))
    losses = {}
    for refine in (0.0, 0.05, 0.2):
        torch.manual_seed(1)
        losses[refine] = made(name, refine=refine).loss(model, batch, step).item()
    torch.manual_seed(1)
    assert losses[0.2] == cross_entropy(model, batch).item()
    assert losses[0.05] == losses[0.0] > losses[0.2] + 0.01


@staged
def test_the_first_stage_is_the_training_of_the_plain_network(task, name):
    seen, plainly = [], []
    task.fit(made(name, pretrain=0.5), epochs=2, watch=lambda m, s: seen.append(copy.deepcopy(m.state_dict())))
    task.fit(METHODS["plain"](), epochs=2, watch=lambda m, s: plainly.append(copy.deepcopy(m.state_dict())))
    half = len(seen) // 2
    for step in (0, half - 1):
        assert all(torch.equal(seen[step][key], value) for key, value in plainly[step].items())
    converted = task.network()
    converted.load_state_dict(plainly[half - 1])
    converted = made(name).build(converted)
    assert all(torch.equal(seen[half - 1][key], value) for key, value in converted.state_dict().items())
    assert any(not torch.equal(seen[half][key], value) for key, value in plainly[half].items())


@staged
def test_the_penalty_waits_and_rises_after_the_first_stage(name):
    batch = Batch(torch.rand(2, 4), torch.tensor([0, 1]))
    added = []
    for epoch in (4.9, 5.5, 6.0, 9.0):
        pair = []
        for weight in (0.0, 20.0):
            method = METHODS[name](kl_weight=weight, pretrain=0.4, refine=0.0, hold=0.1, ramp=0.1)
            torch.manual_seed(0)
            model = made(name).build(nn.Linear(4, 2))
            pair.append(method.loss(model, batch, Step(int(10 * epoch), 100, epoch, 10, 1_000)).item())
        added.append(pair[1] - pair[0])
    assert added == pytest.approx([0, 0.5 * added[2], added[2], added[2]], rel=1e-3)
    assert added[2] > 0


@pytest.mark.trained
@staged
@pytest.mark.stress
@pytest.mark.parametrize("shrink_every", [1, None][: count(1, 2)])
def test_a_killed_run_goes_on_with_the_same_bits_in_every_stage(task, tmp_path, name, shrink_every):
    """Killed while the plain network trains, and while the survivors do."""
    method = made(name, pretrain=0.3, refine=0.3)
    train = Batch(task.train.inputs[:500], task.train.targets[:500])
    budget = Budget(epochs=10, batch=25, lr=1e-2, shrink_every=shrink_every)

    def fitted(folder, kill_at=None):
        def report(done, steps, epoch):
            if done == kill_at:
                raise KeyboardInterrupt

        network = task.network()
        return fit(method, network, train, train, budget, folder=folder, report=report, checkpoint_seconds=0)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    expected = fitted(whole)
    for kill_at in (45, 175):
        with pytest.raises(KeyboardInterrupt):
            fitted(killed, kill_at)
    again = fitted(killed)
    above(1, sparsity(expected.network).ratio, mean=4.91, sd=0.71)
    for kind in ("model", "network"):
        values = getattr(again, kind).state_dict()
        assert all(torch.equal(values[key], value) for key, value in getattr(expected, kind).state_dict().items())


@staged
def test_shares_that_leave_nothing_for_the_penalty_are_refused(name):
    with pytest.raises(ValueError, match=r"must leave a share of the run between them; got pretrain=0.5, refine=0.5"):
        made(name, pretrain=0.5, refine=0.5)
    with pytest.raises(ValueError, match=r"`refine` of .* must be 0 or lie between 0 and 1; got 1.5"):
        made(name, refine=1.5)
