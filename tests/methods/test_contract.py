"""What every method of the table must do, on a fully connected and on a convolutional network."""

import copy
import dataclasses
import io
import itertools

import pytest
import torch
from torch import nn

from vbdrop.methods import METHODS
from vbdrop.models import MLP, LeNet5
from vbdrop.train.method import Batch, Step
from vbdrop.train.sparsity import weight_layers

STEPS = 12
VARIANTS = [  # settings that take another path through a method
    ("variational-dropout", {"noise": "a", "per": "unit"}),
    ("variational-dropout", {"approximation": "sigmoid", "per": "weight"}),
    ("adversarial-dropout", {"mode": "sadd"}),
    ("vbd-rates", {"per": "layer"}),
    ("vbd-rates", {"per": "unit"}),
    ("vbd-gates", {"weighting": "positions"}),
    ("vbd-gates", {"pretrain": 0.25, "refine": 0.4}),
    ("vbd-weights", {"pretrain": 0.25, "refine": 0.4}),
    ("vbd-weights", {"prior": "inverse_gamma", "average": 0.5}),
    ("vbd-weights", {"unit_kl": 5.0, "pretrain": 0.25, "refine": 0.4, "average": 0.2}),
    ("vbd-weights", {"mask_variances": True, "pretrain": 0.25, "refine": 0.4}),
    ("rigl", {"distribution": "uniform", "every": 2}),
    ("gradual-pruning", {"every": 2}),
    ("l0", {"decay": 1.0, "per": "weight"}),
]
CASES = [(name, {}) for name in METHODS] + VARIANTS


def label(case) -> str:
    return str(case) if isinstance(case, str) else "-".join(map(str, case.values()))


every_method = pytest.mark.parametrize(("name", "settings"), CASES, ids=label)
on_both_networks = pytest.mark.parametrize("net", [lambda: MLP([14, 12]), LeNet5], ids=["mlp", "lenet5"])


def batch(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(torch.rand(4, 1, 28, 28, generator=generator), torch.randint(10, (4,), generator=generator))


def at(index: int) -> Step:
    return Step(index=index, steps=STEPS, epoch=index / 4, epochs=STEPS // 4, n_train=16)


def built(method, net):
    torch.manual_seed(0)
    return method.build(net())


def adam(method, model):
    return torch.optim.Adam(method.groups(model, 1e-3), lr=1e-3)


def run(method, model, optimizer, first: int, last: int) -> list[float]:
    losses = []
    for index in range(first, last):
        model.train()
        loss = method.loss(model, batch(index), at(index))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        method.after_step(model, at(index))
        losses.append(loss.item())
    return losses


@every_method
@on_both_networks
def test_a_run_ends_with_a_plain_network_that_computes_the_same(name, settings, net):
    method = METHODS[name](**settings)
    model = built(method, net)
    losses = run(method, model, adam(method, model), 0, STEPS)
    assert torch.tensor(losses).isfinite().all()
    inputs = batch(99).inputs
    expected = model.eval()(inputs)
    weights = copy.deepcopy(model.state_dict())
    plain = method.finish(copy.deepcopy(model)).eval()
    fresh = net()
    assert [type(module) for module in plain.modules()] == [type(module) for module in fresh.modules()]
    assert plain.state_dict().keys() == fresh.state_dict().keys()
    assert {n: set(m.__dict__) for n, m in plain.named_modules()} == {
        n: set(m.__dict__) for n, m in fresh.named_modules()
    }
    torch.testing.assert_close(plain(inputs), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(model.eval()(inputs), expected), "finishing a copy changed the model"
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


@every_method
def test_every_parameter_of_a_layer_gets_a_finite_gradient(name, settings):
    method = METHODS[name](**settings)
    model = built(method, lambda: MLP([14, 12]))
    run(method, model, adam(method, model), 0, 8)
    model.zero_grad()
    method.loss(model.train(), batch(8), at(8)).backward()
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, key
            assert parameter.grad.isfinite().all(), key


@every_method
def test_the_groups_hold_every_trained_parameter_once(name, settings):
    method = METHODS[name](**settings)
    model = built(method, LeNet5)
    held = [id(parameter) for group in method.groups(model, 0.5) for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for parameter in model.parameters() if parameter.requires_grad)
    assert all(group["lr"] > 0 for group in method.groups(model, 0.5))


@every_method
@pytest.mark.parametrize("stop", [2, 8])
def test_a_checkpoint_of_model_and_optimizer_goes_on_with_the_same_bits(name, settings, stop):
    method = METHODS[name](**settings)
    model = built(method, lambda: MLP([14, 12]))
    optimizer = adam(method, model)
    run(method, model, optimizer, 0, stop)
    file = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict(), torch.get_rng_state()), file)
    expected = run(method, model, optimizer, stop, STEPS)

    other = method.build(MLP([14, 12]))
    others = adam(method, other)
    file.seek(0)
    weights, moments, noise = torch.load(file, weights_only=True)
    other.load_state_dict(weights)
    others.load_state_dict(moments)
    torch.set_rng_state(noise)
    assert run(method, other, others, stop, STEPS) == expected
    for key, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[key], value), key


@every_method
def test_eval_mode_draws_nothing(name, settings):
    method = METHODS[name](**settings)
    model = built(method, lambda: MLP([14, 12]))
    run(method, model, adam(method, model), 0, STEPS)
    model.eval()
    before = torch.get_rng_state()
    assert torch.equal(model(batch(1).inputs), model(batch(1).inputs))
    assert torch.equal(torch.get_rng_state(), before)


def first_losses(name: str) -> list[float]:
    method = METHODS[name]()
    model = built(method, lambda: MLP([14, 12]))
    return run(method, model, adam(method, model), 0, STEPS)


def test_no_method_is_another_one_under_a_new_name():
    losses = {name: first_losses(name) for name in METHODS}
    same = [(a, b) for a, b in itertools.combinations(losses, 2) if losses[a] == losses[b]]
    assert same == []


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_is(name):
    kind = METHODS[name]
    assert kind.name == name
    assert kind.title
    assert kind.paper
    assert kind.family in ("regulariser", "weights", "structured")
    assert kind.version >= 1
    assert kind.__dataclass_params__.frozen
    module = __import__(kind.__module__, fromlist=["__doc__"]).__doc__
    assert "Published" in module
    assert "Deviations" in module


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_that_a_selection_tries_is_valid(name):
    kind = METHODS[name]
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    trials = [dict(zip(kind.knobs, values, strict=True)) for values in itertools.product(*kind.knobs.values())]
    assert len(trials) == (1 if name == "plain" else 8 if kind.family == "regulariser" else 6)
    for trial in trials:
        assert set(trial) <= set(fields)
        kind(**trial)
    for knob, values in kind.knobs.items():
        assert fields[knob] in values, "the default is one of the values that are tried"


def test_weights_that_are_dead_are_exact_zeros_in_every_pruning_method():
    for name, settings in [
        ("gradual-pruning", {}),
        ("rigl", {"dense_output": False}),
        ("magnitude-pruning", {"quality": 1.0}),
    ]:
        method = METHODS[name](**settings)
        model = built(method, lambda: MLP([14, 12]))
        run(method, model, adam(method, model), 0, STEPS)
        assert all(bool((layer.weight == 0).any()) for _, layer in weight_layers(method.finish(model))), name


def test_a_bare_layer_is_a_network_too():
    for name in METHODS:
        method = METHODS[name]()
        model = method.build(nn.Linear(784, 10))
        loss = method.loss(model.train(), Batch(batch(0).inputs.flatten(1), batch(0).targets), at(0))
        assert loss.isfinite(), name
        assert type(method.finish(model)) is nn.Linear, name
