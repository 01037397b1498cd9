import pytest
import torch
import torch.nn.functional as F
from tests.integrations.network import MODES, by_attach, by_own_loop, largest_difference
from torch import nn

import vbdrop
from vbdrop.integrations.session import Session, restore_shape_


def network(bias=True):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2, bias=bias))


def step(model, optimizer):
    optimizer.zero_grad()
    F.cross_entropy(model(torch.ones(3, 4)), torch.tensor([0, 1, 0])).backward()
    optimizer.step()


def kill(model, units):
    with torch.no_grad():
        model[2].gate.log_sigma2[units] = 9.0


@pytest.mark.parametrize("mode", MODES)
def test_an_attached_kl_trains_as_one_in_the_loss(mode):
    assert largest_difference(by_own_loop(MODES[mode]), by_attach(MODES[mode])) < 1e-5


def test_a_model_is_converted_once():
    model, session = network(), Session([vbdrop.Units()], {"n_train": 10})
    assert session.prepare_(model) is session.prepare_(model)
    again = Session([vbdrop.Units()], {"n_train": 10})
    assert again.prepare_(model).model is model


def test_a_plain_model_without_modes_is_refused():
    with pytest.raises(ValueError, match="pass modes"):
        Session([], {"n_train": 10}).prepare_(network())


def test_the_objective_is_there_once_it_is_prepared():
    with pytest.raises(RuntimeError, match="once training has started"):
        _ = Session([vbdrop.Units()], {"n_train": 10}).elbo


def test_only_the_optimizer_of_the_model_gets_the_kl():
    model, other, session = network(), nn.Linear(2, 2), Session([vbdrop.Units()], {"n_train": 1})
    session.prepare_(model)
    mine, foreign = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    session.attach(foreign, mine)
    foreign.step()
    assert session.elbo.calls == 0
    step(model, mine)
    assert session.elbo.calls == 1
    session.detach()
    step(model, mine)
    assert session.elbo.calls == 1
    with pytest.raises(ValueError, match="no optimizer trains a converted layer"):
        session.attach(foreign)


def test_a_shrunk_model_comes_back_from_its_state():
    model, session = network(), Session([vbdrop.Units()], {"n_train": 10})
    session.prepare_(model)
    optimizer = torch.optim.Adam(model.parameters())
    session.attach(optimizer)
    for units in ([0, 1], [2]):
        step(model, optimizer)
        kill(model, units)
        session.shrink_(torch.zeros(2, 4), optimizer)
    step(model, optimizer)
    assert model[0].out_features == 3
    assert len(session.plans) == 2
    restored = restore_shape_(network(), session.state_dict())
    restored.load_state_dict(model.state_dict())
    assert torch.equal(restored.eval()(torch.ones(1, 4)), model.eval()(torch.ones(1, 4)))

    other = Session([vbdrop.Units()], {"n_train": 10})
    fresh = network()
    other.prepare_(fresh)
    other.reshape_(session.state_dict())
    other.load_state_dict(session.state_dict())
    assert [p.shape for p in fresh.parameters()] == [p.shape for p in model.parameters()]
    assert other.elbo.calls == 3


def test_nothing_dead_changes_nothing():
    model, session = network(), Session([vbdrop.Units()], {"n_train": 10})
    session.prepare_(model)
    assert not session.shrink_(torch.zeros(2, 4), None).keep
    assert session.plans == []


def test_the_optimizer_state_fits_where_a_plan_has_made_a_bias():
    def prepared():
        model, session = network(bias=False), Session([vbdrop.Weights()], {"n_train": 10})
        session.prepare_(model)
        return model, session

    model, session = prepared()
    with torch.no_grad():
        model[0].log_sigma2[:2] = 20.0  # constants behind it, which the next layer needs a bias for
        model[0].bias[:2] = 1.0
    optimizer = torch.optim.Adam(model.parameters())
    session.attach(optimizer)
    step(model, optimizer)
    session.shrink_(torch.zeros(2, 4), optimizer)
    assert model[2].bias is not None
    step(model, optimizer)

    fresh, again = prepared()
    again.reshape_(session.state_dict())
    other = torch.optim.Adam(fresh.parameters())
    again.attach(other)
    other.load_state_dict(optimizer.state_dict())
    expected = {name: optimizer.state[p]["exp_avg"] for name, p in model.named_parameters()}
    assert all(torch.equal(other.state[p]["exp_avg"], expected[name]) for name, p in fresh.named_parameters())


def with_target(rate_lr=None):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    target = vbdrop.Target(weights=2, train=0.2, refine=0.3)
    session = Session([vbdrop.Units()], {"n_train": 10, "target": target}, rate_lr, torch.zeros(2, 4))
    session.prepare_(model, epochs=3.0)
    return session, model


def test_the_rates_of_a_target_are_quick_enough_for_its_press_stage():
    session, model = with_target()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    session.attach(optimizer, schedulers=[schedule], steps=400)
    groups = optimizer.param_groups
    names = {id(parameter): name.rpartition(".")[2] for name, parameter in model.named_parameters()}
    assert [{names[id(p)] for p in group["params"]} for group in groups] == [
        {"weight", "bias"},
        {"weight"},  # the means of the gates: as quick as that, they would all shrink together
        {"log_sigma2"},
    ]
    assert [group["initial_lr"] for group in groups] == pytest.approx([1e-3, 1e-3, 30 / 200])
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0, 0.0]
    session.attach(optimizer, schedulers=[schedule], steps=4)  # once is enough
    assert [group["initial_lr"] for group in groups] == pytest.approx([1e-3, 1e-3, 30 / 200])


def test_in_a_short_training_the_rates_do_not_jump():
    session, model = with_target()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    session.attach(optimizer, steps=20)
    assert optimizer.param_groups[-1]["lr"] == 0.5


@pytest.mark.parametrize("steps", [None, float("inf")])
def test_without_a_number_of_steps_the_rates_learn_as_the_weights_do(steps):
    session, model = with_target()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    session.attach(optimizer, steps=steps)
    assert {group["lr"] for group in optimizer.param_groups} == {1e-3}


def test_a_learning_rate_that_somebody_has_chosen_stays():
    session, model = with_target()
    optimizer = torch.optim.AdamW(vbdrop.param_groups(model, lr=1e-3, rate_lr=5e-3))
    session.attach(optimizer, steps=400)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 5e-3]
    session, model = with_target(rate_lr=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    session.attach(optimizer, steps=400)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 0.02]


def test_with_several_optimizers_each_has_its_rates_apart():
    model, session = network(), Session([vbdrop.Weights()], {"n_train": 10}, rate_lr=0.3)
    session.prepare_(model)
    optimizers = [torch.optim.AdamW(model[place].parameters(), lr=0.1, weight_decay=0.5) for place in (0, 2)]
    schedulers = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0) for optimizer in optimizers]
    session.attach(*optimizers, schedulers=schedulers)
    for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
        step(model, optimizer)
        scheduler.step()
        found = [(len(g["params"]), g["lr"], g["weight_decay"]) for g in optimizer.param_groups]
        assert found == [(2, 0.1, 0.5), (1, 0.3, 0.0)]


def test_with_several_optimizers_a_target_counts_the_steps_of_one():
    model = network()
    target = vbdrop.Target(weights=2, steps=10, train=0.2, refine=0.3)
    session = Session([vbdrop.Weights()], {"n_train": 10, "target": target}, example_inputs=torch.zeros(2, 4))
    (pursuit,) = session.prepare_(model).observers
    optimizers = [torch.optim.Adam(model[place].parameters(), lr=0.01) for place in (0, 2)]
    session.attach(*optimizers)
    cut = []
    for _ in range(10):
        for optimizer in optimizers:
            step(model, optimizer)
        cut.append(pursuit.is_cut)
    assert cut == [False] * 7 + [True] * 3
    assert pursuit.step == 10
    assert len(model[2].log_sigma2.unique()) == 1  # no noise: they rest, in the second optimizer


def test_a_shrunk_model_goes_back_to_an_earlier_checkpoint():
    model, session = network(), Session([vbdrop.Units()], {"n_train": 10})
    session.prepare_(model)
    x, states = torch.ones(1, 4), []
    for units in ([], [0, 1], [2]):
        kill(model, units)
        session.shrink_(torch.zeros(2, 4), None)
        tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        states.append((session.state_dict(), tensors, model.eval()(x)))
    for state, tensors, output in (states[1], states[0], states[2]):
        session.reshape_(state)
        model.load_state_dict(tensors)
        session.load_state_dict(state)
        assert torch.equal(model.eval()(x), output)
        assert session.state_dict() == state
    optimizer = torch.optim.Adam(model.parameters())
    session.attach(optimizer)
    step(model.train(), optimizer)
    assert session.elbo.calls == 1


def test_a_session_forgets_the_plans_of_its_last_model():
    session = Session([vbdrop.Units()], {"n_train": 10})
    first, second = network(), network()
    session.prepare_(first)
    kill(first, [0, 1])
    session.shrink_(torch.zeros(2, 4), None)
    session.prepare_(second)
    restored = restore_shape_(network(), session.state_dict())
    restored.load_state_dict(second.state_dict())
