"""A target in pursuit, in a loop of one's own: it lands, and it can be stopped and resumed."""

import copy
from itertools import pairwise

import pytest
import torch
from tests.stress import count
from torch import nn
from torch.optim.swa_utils import AveragedModel

import vbdrop
from vbdrop.targets.layer_times import LayerTimes
from vbdrop.targets.path import Path
from vbdrop.targets.prunable import prunables
from vbdrop.targets.pursuit import MEASURE_EVERY, UPDATES
from vbdrop.targets.stopwatch import Timing
from vbdrop.targets.target import Target

STEPS = 60


def task():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 12, generator=generator)
    return x, (x[:, 0] - x[:, 1] > 0).long()


def started(target, *modes):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 2))
    vbdrop.convert_(model, *(modes or (vbdrop.Weights(),)))
    elbo = vbdrop.ELBO(model, n_train=256, target=target, check_every=0)
    (pursuit,) = elbo.observers
    return model, elbo, pursuit, torch.optim.Adam(vbdrop.param_groups(model, lr=5e-3, rate_lr=0.3))


def steps(model, elbo, pursuit, optimizer, count, first=0):
    x, y = task()
    model.train()
    for step in range(first, first + count):
        torch.manual_seed(step)
        chosen = torch.randint(256, (64,))
        optimizer.zero_grad()
        elbo(nn.functional.cross_entropy(model(x[chosen]), y[chosen])).backward()
        elbo.step(optimizer)
        optimizer.step()


def target(steps=STEPS, **arguments):
    return Target(**arguments, steps=steps, example_inputs=torch.zeros(1, 12))


@pytest.mark.parametrize(
    ("size", "modes"),
    [
        ({"weights": 5}, (vbdrop.Weights(),)),
        ({"weights": 20}, (vbdrop.Weights(),)),
        ({"macs": 3}, (vbdrop.Units(log_sigma2=-3.0),)),
        ({"parameters": 4}, (vbdrop.Units(log_sigma2=-3.0),)),
        ({"max_bytes": 1500}, (vbdrop.Weights(), vbdrop.Units(log_sigma2=-3.0))),
        ({"weights": 5, "refine": 0}, (vbdrop.Weights(),)),
        ({"weights": 5, "train": 0, "refine": 0.9}, (vbdrop.Weights(),)),
        ({"weights": 5, "train": 0.5, "refine": 0.5}, (vbdrop.Weights(),)),
    ],
)
def test_it_ends_at_the_target_and_never_above(size, modes):
    model, elbo, pursuit, optimizer = started(target(**size), *modes)
    steps(model, elbo, pursuit, optimizer, STEPS)
    small = vbdrop.compress(model, torch.zeros(1, 12))
    after = small.summary().after
    parameters = sum(p.numel() for p in small.model.parameters())
    found = {"weights": after.nonzeros, "macs": after.macs, "bytes": after.bytes, "parameters": parameters}
    largest_unit = 0.05 * pursuit.limit + 32 + 4 * 44 * (pursuit.target.measured == "bytes")
    assert pursuit.limit - largest_unit <= found[pursuit.target.measured] <= pursuit.limit
    assert all(bool(one.alive().any()) for one in prunables(model))  # no layer is empty
    assert elbo.kl_weight == 0


def test_the_dead_stay_dead_and_the_survivors_train_in_the_last_stage():
    model, elbo, pursuit, optimizer = started(target(weights=5, refine=0.5))
    steps(model, elbo, pursuit, optimizer, STEPS // 2 + 1)
    assert pursuit.is_cut
    masks = [one.alive() for one in prunables(model)]
    before = model[0].weight.detach().clone()
    steps(model, elbo, pursuit, optimizer, STEPS // 2 - 1, first=STEPS // 2 + 1)
    assert all(torch.equal(one.alive(), mask) for one, mask in zip(prunables(model), masks, strict=True))
    plain = vbdrop.deterministic_(copy.deepcopy(model))
    assert ((plain[0].weight != 0) == masks[0]).all()
    assert not torch.equal(model[0].weight[masks[0]], before[masks[0]])


def test_the_path_is_followed():
    model, elbo, pursuit, optimizer = started(target(weights=10, train=0, refine=0.2, steps=200))
    steps(model, elbo, pursuit, optimizer, 160)
    assert len(pursuit.walk) == UPDATES
    sizes = [point.size for point in pursuit.walk]
    assert all(later <= earlier for earlier, later in pairwise(sizes))
    off = [point.size / point.path for point in pursuit.walk if point.path > 1.05 * pursuit.limit]
    assert max(off) < 1.25  # a step takes a limited share, so it may be late
    assert min(off) > 0.95


def test_it_goes_by_optimizer_steps_and_not_by_losses():
    model, elbo, pursuit, optimizer = started(target(weights=5))
    x, y = task()
    for _ in range(7):
        elbo(nn.functional.cross_entropy(model(x), y))
    assert pursuit.step == 0
    steps(model, elbo, pursuit, optimizer, 3)
    assert pursuit.step == 3


def test_epochs_are_counted_by_the_elbo():
    goal = Target(weights=5, epochs=6, train=0.0, refine=0.5, example_inputs=torch.zeros(1, 12))
    model, elbo, pursuit, optimizer = started(goal)
    stages = []
    for epoch in range(6):
        elbo.epoch = epoch
        steps(model, elbo, pursuit, optimizer, 10, first=10 * epoch)
        stages.append(pursuit.stage)
    assert stages == ["press", "press", "refine", "refine", "refine", "refine"]
    model, elbo, pursuit, optimizer = started(goal)
    with pytest.raises(RuntimeError, match=r"elbo\.epoch"):
        steps(model, elbo, pursuit, optimizer, 1)


def test_epochs_without_a_last_stage_end_with_a_cut_before_the_last_step():
    goal = Target(weights=5, epochs=3, train=0.0, refine=0.0, example_inputs=torch.zeros(1, 12))
    model, elbo, pursuit, optimizer = started(goal)
    for epoch in range(3):
        elbo.epoch = epoch
        steps(model, elbo, pursuit, optimizer, 5, first=5 * epoch)
    assert pursuit.cut_cost.step == 14
    assert vbdrop.compress(model, torch.zeros(1, 12)).summary().after.nonzeros <= pursuit.limit


@pytest.mark.stress
@pytest.mark.parametrize("stop", [30, 1, 17, 45][: count(2, 4)])
def test_a_run_that_was_stopped_ends_with_the_same_bits(stop):
    whole = started(target(weights=10))
    steps(*whole, STEPS)
    first = started(target(weights=10))
    steps(*first, stop)
    kept = [copy.deepcopy(part.state_dict()) for part in (first[0], first[1], first[3])]
    again = started(target(weights=10))
    for part, state in zip((again[0], again[1], again[3]), kept, strict=True):
        part.load_state_dict(state)
    assert again[1].kl_weight == first[1].kl_weight
    steps(*again, STEPS - stop, first=stop)
    for name, tensor in whole[0].state_dict().items():
        assert torch.equal(tensor, again[0].state_dict()[name]), name
    assert again[2].state_dict() == whole[2].state_dict()


def test_a_run_in_which_the_model_is_loaded_before_the_elbo_is_made_ends_with_the_same_bits():
    goal, modes = target(macs=3, steps=12), (vbdrop.Units(log_sigma2=-3.0),)
    whole = started(goal, *modes)
    steps(*whole, 7)
    kept = [copy.deepcopy(part.state_dict()) for part in (whole[0], whole[1], whole[3])]
    assert any(not bool(one.alive().all()) for one in prunables(whole[0]))
    steps(*whole, 5, first=7)
    model, _, _, optimizer = started(goal, *modes)
    model.load_state_dict(kept[0])
    elbo = vbdrop.ELBO(model, n_train=256, target=goal, check_every=0)
    elbo.load_state_dict(kept[1])
    optimizer.load_state_dict(kept[2])
    steps(model, elbo, None, optimizer, 5, first=7)
    for name, tensor in whole[0].state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def test_the_sizes_and_the_path_of_a_run_are_in_its_state():
    first, second = (started(target(weights=5))[2] for _ in range(2))
    second.before, second.limit, second.least = 2000.0, 400.0, 7.0  # as another measurement may find them
    second.path = Path.of(second.target, 2000.0, 400.0)
    state = first.state_dict()
    second.load_state_dict(state)
    assert (second.before, second.limit, second.least) == (first.before, first.limit, first.least)
    assert second.path == first.path
    old = {name: value for name, value in state.items() if name not in ("sizes", "path", "kl_factors")}
    second.load_state_dict(old)
    assert second.path == first.path


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        (Target(weights=2, example_inputs=torch.zeros(1, 12)), "must have a length"),
        (Target(weights=2, steps=5), "must have `example_inputs`"),
        (
            Target(weights=2, epochs=1, example_inputs=torch.zeros(1, 12)),
            "`epochs` .* at least 2.*; got 1",
        ),
        (target(max_weights=5000), "not below the size of the model, 1,000 weights"),
        (target(within=0.3), "vbdrop.shrink"),
        (target(max_latency="1 s", runtime="torch"), "is not below the size of the model"),
    ],
)
def test_what_cannot_start_says_why(goal, message):
    with pytest.raises(ValueError, match=message):
        started(goal)


def test_what_the_removable_share_cannot_reach_is_refused():
    with pytest.raises(ValueError, match=r"it asks for 7 bytes of .* can be removed is 99\.\d% of that, which leaves"):
        started(target(max_bytes=7))  # the biases of the output alone are more


def test_it_is_pursued_through_an_attached_optimizer_too():
    model, elbo, pursuit, optimizer = started(target(weights=5))
    handle = elbo.attach(optimizer)
    x, y = task()
    for step in range(STEPS):
        torch.manual_seed(step)
        optimizer.zero_grad()
        for part in (slice(0, 128), slice(128, 256)):  # accumulated over two batches
            (nn.functional.cross_entropy(model(x[part]), y[part]) / 2).backward()
        optimizer.step()
    handle.remove()
    assert (pursuit.step, pursuit.is_cut) == (STEPS, True)
    assert vbdrop.compress(model, torch.zeros(1, 12)).summary().after.nonzeros <= 200


def test_a_target_leaves_no_room_for_another_weight():
    model = nn.Linear(4, 2)
    vbdrop.convert_(model, vbdrop.Weights())
    goal = Target(weights=2, steps=5, example_inputs=torch.zeros(1, 4))
    with pytest.raises(ValueError, match="leave `kl_weight` and `warmup` out"):
        vbdrop.ELBO(model, n_train=10, target=goal, kl_weight=1.0)
    with pytest.raises(TypeError, match=r"must be a vbdrop\.Target"):
        vbdrop.ELBO(model, n_train=10, target=5)


def test_what_the_cut_cost_is_noted():
    model, elbo, pursuit, optimizer = started(target(weights=5, refine=0.5))
    pursuit.judge = pursuit.exact_size
    steps(model, elbo, pursuit, optimizer, STEPS)
    cost = pursuit.cut_cost
    assert cost.size_before == cost.error_before  # that judge counts, too
    assert cost.size == cost.error <= 200
    assert cost.elements > 0
    assert cost.nats >= 0
    assert cost.nats_per_example == pytest.approx(cost.nats * pursuit.controller.weight / 256)


def test_the_last_estimates_are_compared_also_with_fewer_steps_than_updates(monkeypatch):
    model, elbo, pursuit, optimizer = started(target(weights=5))
    assert STEPS < UPDATES
    compared = []
    monkeypatch.setattr(pursuit, "_compare", lambda: compared.append(pursuit.step))
    steps(model, elbo, pursuit, optimizer, STEPS)
    pressed = [point.step for point in pursuit.walk]
    assert len(pressed) < UPDATES
    assert compared[-2:] == pressed[-2:]


def pursued_time(inputs, model):
    """A pursuit of a time with layer times as they might have been measured."""
    vbdrop.convert_(model, vbdrop.Units(log_sigma2=-3.0))
    goal = Target(latency=1.5, runtime="torch", train=0, steps=200, example_inputs=inputs)
    layers = {
        "0.weight": LayerTimes([1, 12], [1, 30], [[0.1, 0.2], [0.2, 0.5]], (1, 1)),
        "2.weight": LayerTimes([1, 30], [1, 2], [[0.1, 0.2], [0.2, 0.5]], (1, 1)),
    }
    elbo = vbdrop.ELBO(model, n_train=256, check_every=0)
    return elbo, goal.pursue(elbo, Timing(1.0, 1.0, layers, [], (0.0, 1.0)))


@pytest.mark.parametrize("inputs", [torch.zeros(2, 12), (torch.zeros(2, 12),), {"input": torch.zeros(2, 12)}])
def test_a_time_is_measured_on_the_way_with_example_inputs_in_any_form(inputs):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 2))
    elbo, pursuit = pursued_time(inputs, model)
    elbo.observers.append(pursuit)
    steps(model, elbo, pursuit, torch.optim.Adam(model.parameters()), 2 * MEASURE_EVERY)
    assert len(pursuit.walk) > MEASURE_EVERY


def test_a_time_that_is_too_long_by_the_estimate_alone_does_not_end_the_run():
    model = nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 2))
    _, pursuit = pursued_time(torch.zeros(2, 12), model)
    state = pursuit.state_dict() | {"ratio": 1e6}  # measured once, while the machine was busy with something else
    pursuit.load_state_dict(state)
    pursuit.limit = 1e3  # every measured time is shorter
    pursuit.cut_()
    assert pursuit.is_cut


def test_a_moving_average_begins_once_elements_have_been_removed():
    run = model, _, pursuit, _ = started(target(weights=5))
    early = AveragedModel(model)
    steps(*run, STEPS - 10)
    assert pursuit.is_cut
    with pytest.raises(ValueError, match="is longer than argument 1"):
        early.update_parameters(model)
    average = AveragedModel(model)
    for step in range(STEPS - 10, STEPS):
        steps(*run, 1, first=step)
        average.update_parameters(model)
    small, of_average = (vbdrop.compress(each, torch.zeros(1, 12)) for each in (model, average.module))
    assert of_average.summary().after.nonzeros <= small.summary().before.weights / 5
