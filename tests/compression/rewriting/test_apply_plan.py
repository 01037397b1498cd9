import copy

import pytest
import torch
from tests.compression.nets import NETS, LeNet5, conv_norm, difference, mask_units_, randomise_, removed
from torch import nn

import vbdrop
from vbdrop.analysis.graph import trace
from vbdrop.compression import compress
from vbdrop.compression.make_plan import make_plan
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.planning.replaced_modules import counted_as
from vbdrop.compression.rewriting.apply_plan import apply_plan_
from vbdrop.layers.computed_weight import MARK


@torch.no_grad()
def compressed_pair():
    """A network with constants before a padded convolution and a missing bias, and what was removed from it."""
    model = randomise_(
        nn.Sequential(
            *(nn.Conv2d(3, 6, 1), nn.Sigmoid(), conv_norm(6, 5), nn.ReLU()),
            *(nn.Conv2d(5, 6, 1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 25, 2)),
        )
    )
    model[0].weight[:3] = 0
    model[2][0].weight[:2] = 0
    model[4].weight[:2] = 0
    removal = removed(model, torch.randn(2, 3, 5, 5).double())
    assert removal.plan.merge
    assert "4.bias" in removal.plan.add
    return model, removal


def test_a_state_dict_becomes_that_of_the_small_model():
    model, (small, plan, _) = compressed_pair()
    before = copy.deepcopy(model.state_dict())
    state = apply_plan_(plan, model.state_dict())
    assert state.keys() == small.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in small.state_dict().items())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_plan_from_a_file_shapes_a_fresh_instance():
    model = randomise_(LeNet5()).double()
    mask_units_(model, 0.5)
    x = torch.randn(2, 1, 28, 28).double()
    small, plan, _ = removed(model, x)
    fresh = apply_plan_(Plan.from_json(plan.to_json()), LeNet5().double()).eval()
    fresh.load_state_dict(small.state_dict())
    assert difference(small, fresh, x) == 0


def test_a_model_keeps_its_modules_and_parameters_as_objects():
    model, (small, plan, _) = compressed_pair()
    model = copy.deepcopy(model)
    objects = {name: id(parameter) for name, parameter in model.named_parameters()}
    model[0].weight.grad = torch.zeros_like(model[0].weight)
    result = apply_plan_(plan, model)
    assert result is model
    assert {name: id(p) for name, p in model.named_parameters() if name in objects} == objects
    assert model[0].weight.grad is None
    assert difference(small, model, torch.randn(2, 3, 5, 5).double()) == 0


def test_the_wrong_target_is_refused_before_anything_changes():
    _, (_, plan, _) = compressed_pair()
    other = nn.Sequential(nn.Conv2d(3, 7, 1))
    with pytest.raises(ValueError, match=r"'0.weight' must have the shape \[6, 3, 1, 1\] for this plan; got \[7, 3"):
        apply_plan_(plan, other)
    assert other[0].out_channels == len(other[0].weight) == 7
    with pytest.raises(ValueError, match=r"with a tensor '2.0.weight'; it has none"):
        apply_plan_(plan, nn.Sequential(nn.Conv2d(3, 6, 1)))
    with pytest.raises(TypeError, match=r"`target` must be a torch\.nn\.Module or a state dict; got int"):
        apply_plan_(plan, 3)


def test_a_plan_with_a_program_drops_and_adds_tensors_of_a_state_dict():
    model = randomise_(NETS["mlp"].build())
    with torch.no_grad():
        model.fc1.weight[:, :10] = 0
    small, plan, _ = removed(model, torch.randn(2, 20).double())
    state = apply_plan_(plan, model.state_dict())
    assert state.keys() == small.state_dict().keys()
    assert torch.equal(state["fc1_inputs"], torch.arange(10, 20))


@torch.no_grad()
def test_a_module_in_two_places_is_cut_once():
    layer = nn.Conv2d(4, 4, 3, padding=1, bias=False)
    model = randomise_(nn.Sequential(nn.Conv2d(1, 4, 1), nn.Sigmoid(), layer, nn.Sigmoid(), layer, nn.Conv2d(4, 2, 1)))
    layer.weight[:, 3] = 0
    model[5].weight[:, 3] = 0
    small, plan, _ = removed(model, torch.randn(2, 1, 5, 5).double())
    assert small[2] is small[4]
    assert small[2].weight.shape == (3, 3, 3, 3)
    assert plan.keep["2.weight"] == plan.keep["4.weight"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[layer.weight]["momentum_buffer"] = torch.ones_like(layer.weight)
    apply_plan_(plan, model, optimizer)
    assert optimizer.state[layer.weight]["momentum_buffer"].shape == layer.weight.shape == (3, 3, 3, 3)


@torch.no_grad()
def test_a_module_in_two_places_gets_one_new_bias():
    layer = nn.Linear(4, 3, bias=False)
    model = randomise_(nn.ModuleDict({"first": nn.Linear(2, 4), "a": layer, "b": layer}))
    model.first.weight[0] = 0
    model.forward = lambda x: (model.a(model.first(x)), model.b(model.first(x)).relu())
    plan = make_plan(trace(model.double(), (torch.randn(2, 2).double(),)), model).plan
    assert set(plan.add) == {"a.bias", "b.bias"}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = model(torch.ones(2, 2).double())
    apply_plan_(plan, model, optimizer)
    torch.testing.assert_close(model(torch.ones(2, 2).double()), expected)
    assert len(optimizer.param_groups[0]["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_graph_that_is_still_alive_does_not_disturb_the_next_step(dtype):
    model, x = nn.Linear(4, 3).to(dtype), torch.randn(2, 4, dtype=dtype)
    kept = model(x).sum()
    plan = Plan(keep={"weight": {0: [0, 2]}, "bias": {0: [0, 2]}}, shapes={"weight": [3, 4], "bias": [3]})
    apply_plan_(plan, model)
    model(x).sum().backward()
    assert model.weight.dtype == dtype
    assert model.weight.grad.shape == (2, 4)
    assert kept.requires_grad


class Centred(nn.Linear):
    """A layer that computes its weight."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight - self.weight.mean(), self.bias)


def unchanged_by(model, apply):
    kinds = [type(module) for module in model.modules()]
    state = copy.deepcopy(model.state_dict())
    apply()
    same = all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    return same and kinds == [type(module) for module in model.modules()]


def test_a_model_whose_optimizer_cannot_follow_stays_as_it_was():
    model, x = nn.Sequential(Centred(6, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(2, 6)
    with torch.no_grad():
        model[2].weight[:, :2] = 0
    plan = compress(model, x, rewrite=False).plan
    optimizer = torch.optim.Adafactor(model.parameters())
    model(x).sum().backward()
    optimizer.step()

    def apply():
        with pytest.raises(ValueError, match=r"the optimizer's state 'row_var' of '0.weight' has the shape"):
            apply_plan_(plan, model, optimizer)

    assert unchanged_by(model, apply)


def weights_and_rates_apart():
    """A model with dead units after one step of its two optimizers, one for weights and one for rates."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)), torch.randn(8, 4)
    vbdrop.convert_(model, vbdrop.Units())
    weights, rates = vbdrop.param_groups(model, lr=0.01)
    optimizers = [torch.optim.SGD([weights], momentum=0.9), torch.optim.Adam([rates])]
    elbo = vbdrop.ELBO(model, n_train=8)

    def step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        elbo(model(x).square().mean()).backward()
        for optimizer in optimizers:
            optimizer.step()

    step()
    with torch.no_grad():
        model[2].gate.log_sigma2[:3] = model[4].gate.log_sigma2[:3] = 5
    return model, optimizers, step, compress(model, x, rewrite=False).plan


def test_every_optimizer_of_a_model_follows():
    model, optimizers, step, plan = weights_and_rates_apart()
    apply_plan_(plan, model, optimizers)
    assert model[0].weight.shape == (3, 4)
    assert optimizers[0].state[model[0].weight]["momentum_buffer"].shape == (3, 4)
    assert optimizers[1].state[model[2].gate.log_sigma2]["exp_avg"].shape == (3,)
    step()


def test_a_model_of_which_one_optimizer_cannot_follow_stays_as_it_was():
    model, optimizers, step, plan = weights_and_rates_apart()
    optimizers[1].state[model[2].gate.log_sigma2]["row"] = torch.zeros(2)

    def apply():
        with pytest.raises(ValueError, match=r"state 'row' of '2.gate.log_sigma2' has the shape \[2\]"):
            apply_plan_(plan, model, optimizers)
        with pytest.raises(TypeError, match="got one with a dict"):
            apply_plan_(plan, model, [optimizers[0], {}])

    assert unchanged_by(model, apply)
    step()


@pytest.mark.parametrize(
    ("last", "numbers", "message"),
    [
        (nn.Linear(5, 3), {MARK: 1}, "the layer '1' must compute a product with its inputs; got a Linear"),
        (nn.RMSNorm(5), counted_as("rms", 7, 1) | {"formula": 9}, "the norm '1' must have one of 3 formulas; got 9"),
        (nn.Identity(), counted_as("layer", 7, 1), "Identity must have a float under one of eps"),
        (nn.Identity(), {"a": 1}, None),
    ],
)
def test_a_model_that_does_not_fit_the_plan_stays_as_it_was(last, numbers, message):
    model = nn.Sequential(Centred(6, 5), last)
    path = "1" if message else "head"

    def apply():
        with pytest.raises(ValueError, match=message or "with a module 'head'; it has none"):
            apply_plan_(Plan(attributes={"0": {MARK: 1}, path: numbers}), model)

    assert unchanged_by(model, apply)
