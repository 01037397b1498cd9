import pytest
import torch
from torch import nn

import vbdrop
from vbdrop import Rates, Units, Weights, convert_, param_groups

MODES = [(Weights(),), (Units(outputs=lambda m, n: True),), (Rates(),), (Weights(), Units())]


def converted(*modes) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    convert_(model, *modes)
    return model


def names(model: nn.Module, group: dict) -> set[str]:
    of = {id(parameter): name for name, parameter in model.named_parameters()}
    return {of[id(parameter)] for parameter in group["params"]}


@pytest.mark.parametrize("modes", MODES)
def test_every_parameter_is_in_one_group_and_the_rates_are_apart(modes):
    model = converted(*modes)
    plain = {f"{layer}.{kind}" for layer in "012" for kind in ("weight", "bias")}
    weights, rates = param_groups(model, lr=0.1, rate_lr=0.2, weight_decay=0.3)
    assert names(model, weights) == plain
    assert names(model, rates) == {name for name, _ in model.named_parameters()} - plain
    assert len(weights["params"]) + len(rates["params"]) == len(list(model.parameters()))
    assert (weights["lr"], weights["weight_decay"]) == (0.1, 0.3)
    assert (rates["lr"], rates["weight_decay"]) == (0.2, 0.0)


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_with_weight_decay_leaves_the_rates_alone(modes, kind):
    """Without a gradient only the decay moves anything."""
    model = converted(*modes)
    optimizer = kind(param_groups(model), lr=0.1, weight_decay=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer.step()
    rates = names(model, optimizer.param_groups[1])
    for name, parameter in model.named_parameters():
        unchanged = torch.equal(parameter, before[name])
        assert unchanged == (name in rates or not before[name].any()), name


def test_what_is_not_said_is_the_optimizers_own():
    model = converted(Weights())
    assert [set(group) for group in param_groups(model)] == [{"params"}, {"params", "weight_decay"}]
    assert param_groups(model, lr=0.1)[1]["lr"] == 0.1
    assert "lr" not in param_groups(model, rate_lr=0.1)[0]
    assert param_groups(model, lr=torch.tensor(0.1))[1]["lr"] == torch.tensor(0.1)


def test_a_plain_model_has_one_group():
    (group,) = param_groups(nn.Linear(2, 2), rate_lr=1.0)
    assert [tuple(parameter.shape) for parameter in group["params"]] == [(2, 2), (2,)]


def test_a_shared_module_comes_once():
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, shared)
    convert_(model, Weights(), Units())
    assert [len(group["params"]) for group in param_groups(model)] == [2, 3]


def test_an_optimizer_from_before_the_conversion_gets_what_it_lacks():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moments = {id(parameter) for parameter in optimizer.state}
    convert_(model, Weights(), Units())
    for group in param_groups(model, existing=optimizer):
        optimizer.add_param_group(group)
    assert [len(group["params"]) for group in optimizer.param_groups] == [6, 2 + 2 * 2]
    assert (optimizer.param_groups[1]["lr"], optimizer.param_groups[1]["weight_decay"]) == (0.01, 0.0)
    assert moments <= {id(parameter) for parameter in optimizer.state}
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    vbdrop.ELBO(model, n_train=10)(model(torch.randn(5, 4)).square().mean()).backward()
    optimizer.step()
    assert all((parameter != before[name]).all() for name, parameter in model.named_parameters())
    assert param_groups(model, existing=optimizer) == []


@pytest.mark.parametrize("name", ["lr", "rate_lr", "weight_decay"])
@pytest.mark.parametrize("value", [-1e-3, float("nan"), "0.1", [0.1], True])
def test_a_wrong_number_is_named(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a number, at least 0, or None; got"):
        param_groups(converted(Weights()), **{name: value})


def test_a_wrong_model_or_optimizer_is_named():
    with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module; got generator"):
        param_groups(nn.Linear(2, 2).parameters())
    with pytest.raises(TypeError, match=r"`existing` must be a torch\.optim\.Optimizer or None; got list"):
        param_groups(converted(Weights()), existing=[])


def test_groups_with_the_same_options_are_one():
    model = converted(Weights())
    (both,) = param_groups(model, lr=0.1, weight_decay=0.0)
    assert names(model, both) == {name for name, _ in model.named_parameters()}
    assert (both["lr"], both["weight_decay"]) == (0.1, 0.0)
    assert len(param_groups(model, lr=0.1, rate_lr=0.2, weight_decay=0.0)) == 2
    assert len(param_groups(model, lr=0.1)) == 2  # the optimizer may have a weight decay of its own
