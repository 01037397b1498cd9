import gc
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers

from vbdrop import ELBO, Rates, Units, Weights, convert_, param_groups
from vbdrop.objective.decay import DecayWatch, decayed_rates, rate_parameters, warn_of_decay


def converted(*modes) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    convert_(model, *modes)
    return model


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def hooks() -> int:
    return len(optimizers._global_optimizer_pre_hooks)


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        (Weights(), ["0.log_sigma2", "2.log_sigma2"]),
        (Rates(), ["0.log_alpha", "2.log_alpha"]),
        (Units(), ["0.gate.weight", "0.gate.log_sigma2", "2.gate.weight", "2.gate.log_sigma2"]),
    ],
)
def test_the_rates_of_every_mode_are_found(mode, names):
    model = converted(mode)
    assert sorted(rate_parameters(model).values()) == sorted(names)
    every = torch.optim.AdamW(model.parameters(), weight_decay=0.2)
    assert decayed_rates(model, every) == dict.fromkeys(decayed_rates(model, every), 0.2)
    assert sorted(decayed_rates(model, every)) == sorted(names)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda model: torch.optim.AdamW(param_groups(model, lr=1e-3), weight_decay=0.1),
        lambda model: torch.optim.Adam(model.parameters(), lr=1e-3),
        lambda model: torch.optim.Rprop(model.parameters(), lr=1e-3),  # knows no weight decay
    ],
)
def test_rates_without_decay_are_fine(optimizer):
    model = converted(Weights())
    assert decayed_rates(model, optimizer(model)) == {}
    warn_of_decay(model, optimizer(model))


def test_frozen_rates_are_not_decayed():
    model = converted(Weights())
    for layer in (model[0], model[2]):
        layer.log_sigma2.requires_grad_(False)
    assert decayed_rates(model, torch.optim.AdamW(model.parameters())) == {}


def test_the_first_step_with_the_rates_is_seen_and_then_no_other():
    model = converted(Weights())
    weights = [p for p in model.parameters() if id(p) not in rate_parameters(model)]
    rates = [p for p in model.parameters() if id(p) in rate_parameters(model)]
    before = hooks()
    watch = DecayWatch(model)
    assert hooks() == before + 1
    step(model, torch.optim.AdamW(weights))
    step(model, torch.optim.AdamW(nn.Linear(2, 2).parameters()))
    decaying = torch.optim.SGD(rates, lr=1e-3, weight_decay=0.5)
    with pytest.warns(UserWarning, match=r"decays dropout rates \('0.log_sigma2' and 1 more, weight_decay=0.5\).*par"):
        step(model, decaying)
    step(model, decaying)
    watch.end(only_if_seen=True)
    assert hooks() == before


def test_it_does_not_keep_a_model_alive():
    model = converted(Weights())
    watch, gone = DecayWatch(model), weakref.ref(model)
    watch.end(only_if_seen=True)
    del model
    gc.collect()
    assert gone() is None
    other = nn.Linear(2, 2)
    step(other, torch.optim.SGD(other.parameters(), lr=1e-3))
    watch.end()


@pytest.mark.parametrize("mode", [Weights(), Units(), Rates()])
def test_a_users_loop_is_warned_at_its_first_step(mode):
    model = converted(mode)
    elbo = ELBO(model, n_train=100)
    before = hooks()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # a weight decay of 0.01 unless told otherwise
    for index in range(3):
        optimizer.zero_grad()
        elbo(model(torch.ones(5, 3)).square().mean()).backward()
        if index == 0:
            with pytest.warns(UserWarning, match="the optimizer decays dropout rates") as seen:
                optimizer.step()
            assert seen[0].filename == __file__
        else:
            optimizer.step()
    assert hooks() == before


def test_an_optimizer_can_be_checked_by_hand():
    model = converted(Weights())
    elbo = ELBO(model, n_train=100, check_every=0)
    elbo(model(torch.ones(5, 3)).square().mean())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        elbo.check(torch.optim.AdamW(param_groups(model)))
    with pytest.warns(UserWarning, match="the optimizer decays dropout rates") as seen:
        elbo.check(torch.optim.AdamW(model.parameters()))
    assert seen[0].filename == __file__
