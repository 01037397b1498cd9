import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CyclicLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

import vbdrop
from vbdrop.integrations.rate_groups import separate_rates_


def converted():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    vbdrop.convert_(model, vbdrop.Weights())
    return model


def named_groups(model, optimizer):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [sorted(names[id(p)] for p in group["params"]) for group in optimizer.param_groups]


WEIGHTS = ["0.bias", "0.weight", "2.bias", "2.weight"]
RATES = ["0.log_sigma2", "2.log_sigma2"]


def test_rates_leave_groups_with_weight_decay():
    model = converted()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5, betas=(0.8, 0.9))
    separate_rates_(model, optimizer)
    assert named_groups(model, optimizer) == [WEIGHTS, RATES]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]
    assert [group["betas"] for group in optimizer.param_groups] == [(0.8, 0.9)] * 2


def test_groups_without_weight_decay_stay_as_they_are():
    model = converted()
    optimizer = torch.optim.Adam(model.parameters())
    separate_rates_(model, optimizer)
    assert len(optimizer.param_groups) == 1


def test_a_group_of_rates_alone_is_kept():
    model = converted()
    optimizer = torch.optim.AdamW(vbdrop.param_groups(model, lr=0.1))
    separate_rates_(model, optimizer, rate_lr=0.3)
    assert named_groups(model, optimizer) == [WEIGHTS, RATES]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.3]


def test_rates_that_are_missing_are_added():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.5)
    vbdrop.convert_(model, vbdrop.Weights())
    separate_rates_(model, optimizer)
    assert named_groups(model, optimizer) == [WEIGHTS, RATES]
    assert optimizer.param_groups[1]["weight_decay"] == 0.0


SCHEDULERS = {
    "step": lambda optimizer: StepLR(optimizer, 1, gamma=0.5),
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda step: 0.5**step),
    "sequential": lambda optimizer: SequentialLR(
        optimizer, [LambdaLR(optimizer, lambda step: 0.5**step), StepLR(optimizer, 1)], milestones=[10]
    ),
    "chained": lambda optimizer: ChainedScheduler([LambdaLR(optimizer, lambda step: 0.5**step)]),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.filterwarnings("ignore:The epoch parameter in")  # SequentialLR's own, of itself
def test_schedulers_that_are_there_already_move_the_new_group(kind):
    model = converted()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    scheduler = SCHEDULERS[kind](optimizer)
    separate_rates_(model, optimizer, rate_lr=0.4, schedulers=[scheduler])
    for _ in range(2):
        optimizer.step()
        scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.025, 0.1])


def test_a_plateau_scheduler_moves_the_new_group():
    model = converted()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    separate_rates_(model, optimizer, schedulers=[scheduler])
    for _ in range(2):
        scheduler.step(1.0)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.05, 0.05])


def test_rates_that_have_their_learning_rate_stay_where_the_scheduler_has_them():
    model = converted()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    separate_rates_(model, optimizer, rate_lr=0.1)
    LambdaLR(optimizer, lambda step: step / 10)  # a warm-up, from zero
    separate_rates_(model, optimizer, rate_lr=0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 0.0]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]


FROM_BELOW = {
    "linear": lambda optimizer: LinearLR(optimizer, 0.01, 1, 3),
    "constant": lambda optimizer: ConstantLR(optimizer, 0.1, 3),
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda step: min(1, (step + 1) / 4)),
    "sequential": lambda optimizer: SequentialLR(
        optimizer, [LinearLR(optimizer, 0.1, 1, 3), StepLR(optimizer, 2)], milestones=[3]
    ),
    "one cycle": lambda optimizer: OneCycleLR(optimizer, max_lr=0.1, total_steps=8),
    "cyclic": lambda optimizer: CyclicLR(optimizer, 0.1, 0.3, step_size_up=2),
}


def learning_rates(optimizer, scheduler, steps=5):
    found = []
    for _ in range(steps):
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("kind", FROM_BELOW)
@pytest.mark.filterwarnings("ignore:The epoch parameter in")
def test_a_warm_up_scales_the_learning_rate_of_the_rates_as_that_of_the_weights(kind):
    model = converted()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    scheduler = FROM_BELOW[kind](optimizer)
    separate_rates_(model, optimizer, rate_lr=0.4, schedulers=[scheduler])
    for weights, rates in learning_rates(optimizer, scheduler):
        assert rates == pytest.approx(4 * weights)


def test_a_one_cycle_goes_up_to_the_learning_rate_of_the_rates():
    model = converted()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=8)
    separate_rates_(model, optimizer, rate_lr=0.4, schedulers=[scheduler])
    rates = [rate for _, rate in learning_rates(optimizer, scheduler, 7)]
    assert rates[0] == pytest.approx(0.4 / 25)
    assert max(rates) == pytest.approx(0.4, rel=0.05)


@pytest.mark.parametrize("kind", FROM_BELOW)
@pytest.mark.filterwarnings("ignore:The epoch parameter in")
def test_a_group_of_rates_alone_keeps_its_learning_rate_when_schedulers_step(kind):
    model = converted()
    optimizer = torch.optim.AdamW(vbdrop.param_groups(model, lr=0.1, weight_decay=0.5))
    scheduler = FROM_BELOW[kind](optimizer)
    separate_rates_(model, optimizer, rate_lr=0.4, schedulers=[scheduler])
    assert len(optimizer.param_groups) == 2
    for weights, rates in learning_rates(optimizer, scheduler):
        assert rates == pytest.approx(4 * weights)


def test_log_variances_without_decay_keep_their_learning_rate_when_the_scheduler_steps():
    model = converted()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    scheduler = LambdaLR(optimizer, lambda step: 0.5**step)
    separate_rates_(model, optimizer, variance_lr=0.4, schedulers=[scheduler])
    assert learning_rates(optimizer, scheduler, 2) == [[0.1, 0.4], [0.05, 0.2]]


def test_rates_of_another_optimizer_and_its_schedulers_are_left_alone():
    model = converted()
    first = torch.optim.AdamW(model[0].parameters(), lr=0.1, weight_decay=0.5)
    second = torch.optim.AdamW(model[2].parameters(), lr=0.1, weight_decay=0.5)
    schedulers = [StepLR(first, 1), StepLR(second, 1)]
    separate_rates_(model, first, rate_lr=0.4, schedulers=schedulers, others=[second])
    assert named_groups(model, first) == [["0.bias", "0.weight"], ["0.log_sigma2"]]
    assert [scheduler.base_lrs for scheduler in schedulers] == [[0.1, 0.4], [0.1]]
