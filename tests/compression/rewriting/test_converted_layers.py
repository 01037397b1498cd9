import copy

import pytest
import torch
from tests.compression.nets import conv_norm, difference, randomise_
from torch import nn
from torch.nn import functional as F

import vbdrop
from vbdrop.compression import apply_plan_, compress


class Net(nn.Module):
    """Padded, unpadded, grouped and transposed convolutions, with and without bias, and linear layers."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), conv_norm(8, 10)
        self.grouped = nn.Conv2d(10, 10, 3, groups=5, padding=1)
        self.up = nn.ConvTranspose2d(10, 6, 2)
        self.fc1, self.fc2 = nn.Linear(6, 16, bias=False), nn.Linear(16, 3)

    def forward(self, x):
        x = torch.sigmoid(self.up(F.softplus(self.grouped(torch.sigmoid(self.conv2(torch.sigmoid(self.conv1(x))))))))
        return self.fc2(F.softplus(self.fc1(x.mean((2, 3)))))


@torch.no_grad()
def trained(*modes) -> nn.Module:
    """A converted network of which parts are dead, as after training."""
    torch.manual_seed(3)
    model = randomise_(Net()).double()
    vbdrop.convert_(model, *modes)
    for name, parameter in model.named_parameters():
        if name.endswith("gate.weight"):
            parameter.uniform_(0.5, 2)
    for layer in (model.conv1, model.conv2[0], model.grouped, model.fc1):
        if "log_sigma2" in layer._parameters:
            layer.log_sigma2[:3] = 20  # dead rows: constants behind them
            layer.log_sigma2[-1, 0] = 20
    for layer in (model.grouped, model.up, model.fc2):
        if hasattr(layer, "gate"):
            layer.gate.log_sigma2[-2:] = 20  # dead inputs
    return model.eval()


MODES = {
    "weights": (vbdrop.Weights(),),
    "units": (vbdrop.Units(outputs=lambda module, name: name in ("grouped", "fc1")),),
    "both": (vbdrop.Weights(), vbdrop.Units(outputs=lambda module, name: name in ("conv1", "fc2"))),
}
X = torch.randn(2, 1, 8, 8).double()


@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
def test_a_bayesian_model_becomes_smaller_and_computes_the_same(modes):
    model = trained(*modes)
    before = copy.deepcopy(model)
    small = compress(model, X, rewrite=False)
    assert difference(before, small.model, X) < 1e-10
    shrunk = apply_plan_(small.plan, model)
    assert shrunk is model
    assert difference(before, shrunk, X) < 1e-10
    assert difference(small.model, vbdrop.deterministic_(copy.deepcopy(shrunk)), X) < 1e-10
    assert shrunk.fc1.weight.shape == small.model.fc1.weight.shape
    assert shrunk.fc1.weight.numel() < before.fc1.weight.numel()


@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
def test_training_goes_on_with_the_state_of_the_optimizer(modes):
    model = trained(*modes).train()
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=1e-3))
    elbo = vbdrop.ELBO(model, n_train=10)

    def step() -> float:
        loss = elbo(F.cross_entropy(model(X), torch.tensor([0, 2])))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    small = compress(model, X, rewrite=False, recalibrate=False)
    moments = {name: optimizer.state[p]["exp_avg"].clone() for name, p in model.named_parameters()}
    apply_plan_(small.plan, model, optimizer)
    kept = small.plan.keep["fc2.weight"][1]
    fc2 = optimizer.state[model.fc2.weight]
    assert torch.equal(fc2["exp_avg"], moments["fc2.weight"][:, kept])
    for parameter in model.parameters():
        state = optimizer.state.get(parameter, {})
        assert all(value.shape == parameter.shape for value in state.values() if value.dim())
    known = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert {id(p) for p in model.parameters()} <= known
    assert torch.isfinite(torch.tensor(step()))


def test_shared_rates_follow_their_units():
    for per in ("unit", "weight", "layer"):
        model = trained(vbdrop.Rates(per=per))
        with torch.no_grad():
            model.fc1.weight[:4] = 0
        before = copy.deepcopy(model)
        apply_plan_(compress(model, X, rewrite=False).plan, model)
        assert difference(before, model, X) < 1e-10
        expected = {"unit": (12,), "weight": (3, 12), "layer": (1,)}[per]
        assert tuple(model.fc2.log_alpha.shape) == expected


def test_a_plan_that_replaces_the_forward_is_not_for_training():
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    vbdrop.convert_(model, vbdrop.Units())
    with torch.no_grad():
        model[0].gate.log_sigma2[:3] = 20  # selected input features need a new forward
    small = compress(model, torch.randn(2, 6))
    assert small.plan.program is not None
    with pytest.raises(ValueError, match="rewrite=False"):
        apply_plan_(small.plan, model)


def test_the_state_dict_of_a_bayesian_model_is_cut_where_nothing_is_merged():
    model = trained(*MODES["both"])
    small = compress(model, X, rewrite=False)
    assert small.plan.merge
    with pytest.raises(ValueError, match="load it into the model"):
        apply_plan_(small.plan, model.state_dict())
    linear = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    vbdrop.convert_(linear, vbdrop.Weights(), vbdrop.Units(outputs=lambda module, name: name == "2"))
    with torch.no_grad():
        linear[0].log_sigma2[1] = 20
        linear[2].output_gate.weight[:] = torch.tensor([0.5, 2.0])
    plan = compress(linear, torch.randn(2, 6), rewrite=False).plan
    state = apply_plan_(plan, linear.state_dict())
    shrunk = apply_plan_(plan, copy.deepcopy(linear))
    assert state.keys() == shrunk.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in shrunk.state_dict().items())


@pytest.mark.filterwarnings("ignore:.*the outputs no longer depend on the inputs:UserWarning")
@pytest.mark.parametrize("per", ["unit", "layer", "weight"])
@pytest.mark.parametrize("inputs", [1, 3])
@torch.no_grad()
def test_one_rate_of_a_unit_is_told_from_the_one_rate_of_a_layer(per, inputs):
    """With one input both have the shape (1,); a layer keeps one input at least, and its rate with it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, inputs), nn.Tanh(), nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    model[0].weight[:1] = 0  # a constant for the layer behind it: with one input, the only one
    model[2].weight[:2] = 0
    vbdrop.convert_(model, vbdrop.Rates(per=per))
    for name, rate in model.named_parameters():
        if "log_" in name:
            rate.copy_(torch.linspace(-3, -1, rate.numel()).reshape(rate.shape))
    before, x = copy.deepcopy(model).eval(), torch.randn(6, 4).double()
    small = apply_plan_(compress(before, x, rewrite=False).plan, model)
    (rows, kept), one = small[2].weight.shape, inputs == 1
    assert (rows, kept) == ((1, 1) if one else (3, 2))
    (rate,) = [parameter for name, parameter in small[2].named_parameters() if "log_" in name]
    assert rate.shape == {"unit": (kept,), "layer": (1,), "weight": (rows, kept)}[per]
    if per == "unit":
        assert rate.tolist() == torch.linspace(-3, -1, inputs).double()[-kept:].tolist()
    assert difference(before, small.eval(), x) < 1e-10
    assert small.train()(x).shape == (6, 2)
