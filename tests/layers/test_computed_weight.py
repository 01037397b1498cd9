"""Layers that compute their weight in their forward: gates on what enters, and a layer of torch in the end."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import vbdrop
from vbdrop.layers import GatedProduct, SharedGate
from vbdrop.layers.computed_weight import computed_weight, make_product_


class Standardised(nn.Conv2d):
    """A convolution with a standardised weight and a gain, as in networks without normalisation."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.gain = nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))

    def forward(self, x):
        mean, var = self.weight.mean((1, 2, 3), keepdim=True), self.weight.var((1, 2, 3), keepdim=True)
        weight = self.gain * (self.weight - mean) * torch.rsqrt(var + 1e-5)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Written(nn.Linear):
    """The product of a linear layer, written by hand."""

    def forward(self, x):
        return x @ self.weight.T + self.bias


class Adapted(nn.Linear):
    """A low-rank part that starts at zero."""

    def __init__(self, *args):
        super().__init__(*args)
        self.down, self.up = nn.Parameter(torch.randn(2, self.in_features)), nn.Parameter(torch.zeros(3, 2))

    def forward(self, x):
        return super().forward(x) + x @ self.down.T @ self.up.T


class Shaken(nn.Linear):
    """Noise of its own on the weight, in training."""

    def forward(self, x):
        noise = torch.randn_like(self.weight) if self.training else 0.0
        return F.linear(x, self.weight + noise, self.bias)


class Padded(nn.Conv2d):
    """An image that is padded first."""

    def forward(self, x):
        return super().forward(F.pad(x, (0, 1, 0, 1)))


class Dynamic(nn.Linear):
    """A weight that depends on the inputs."""

    def forward(self, x):
        return F.linear(x, self.weight * x.mean(), self.bias)


class Clamped(nn.Linear):
    """Large inputs are clamped."""

    def forward(self, x):
        return F.linear(x.clamp(-8, 8), self.weight, self.bias)


class Silenced(nn.Linear):
    """Tiny inputs are ignored."""

    def forward(self, x):
        return F.linear(F.hardshrink(x, 1e-4), self.weight, self.bias)


class Flattened(nn.Linear):
    """Whatever an example holds is one row of features."""

    def forward(self, x):
        return F.linear(x.flatten(1), self.weight, self.bias)


class PaddedToEven(nn.Conv2d):
    """Images of odd sizes are padded first."""

    def forward(self, x):
        return super().forward(F.pad(x, (0, x.shape[-1] % 2, 0, x.shape[-2] % 2)))


class Network(nn.Sequential):
    def __init__(self):
        super().__init__(
            *(Standardised(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), Standardised(6, 8, 3, bias=False)),
            *(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), Written(8, 5), nn.ReLU(), nn.Linear(5, 2)),
        )


def converted():
    torch.manual_seed(0)
    model, x = Network().eval(), torch.randn(4, 3, 7, 7)
    report = vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    return model, x, report


@torch.no_grad()
def kill_(model):
    for gate in [gate for module in model.modules() if isinstance(module, SharedGate) for gate in module.own.values()]:
        gate.weight.copy_(torch.rand_like(gate.weight) + 0.5)
        gate.log_sigma2[:2] = 20.0


def test_the_weight_is_the_one_of_the_product():
    torch.manual_seed(0)
    layer, x = Standardised(3, 4, 2), torch.randn(2, 3, 5, 5)
    weight = computed_weight(layer)
    torch.testing.assert_close(F.conv2d(x, weight, layer.bias), layer(x))
    assert not torch.allclose(weight, layer.weight)
    written = Written(3, 2)
    assert torch.equal(computed_weight(written), written.weight)


@pytest.mark.parametrize(
    "layer",
    [
        *(Adapted(4, 3), Shaken(4, 3), Padded(2, 3, 3), Dynamic(4, 3), nn.Linear(2, 2)),
        *(Clamped(4, 3), Silenced(4, 3), Flattened(4, 3), PaddedToEven(2, 3, 2, 2)),
    ],
)
def test_what_is_no_product_of_its_inputs_has_none(layer):
    before = layer.training, {name: value.clone() for name, value in layer.state_dict().items()}
    assert computed_weight(layer) is None
    assert not make_product_(layer)
    assert layer.training == before[0]
    assert all(torch.equal(value, before[1][name]) for name, value in layer.state_dict().items())


def test_in_half_precision_large_inputs_overflow_and_count_for_nothing():
    layer = Standardised(3, 4, 2).half()
    assert computed_weight(layer).dtype == torch.float16


def test_gates_train_through_the_forward_of_the_class():
    model, x, report = converted()
    assert {"3", "7", "9"} <= set(report.converted)
    assert report.groups[0].weights == 1.0
    assert isinstance(model[3], GatedProduct)
    assert isinstance(model[3], Standardised)
    plain = Network().eval()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "gate" not in name})
    torch.testing.assert_close(model(x), plain(x))
    model.train()(x).square().sum().backward()
    assert model[3].gain.grad is not None
    assert bool(model[3].gate.all_gates[0].log_sigma2.grad.any())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_the_same(copied):
    model, x, _ = converted()
    kill_(model)
    again = copied(model)
    assert type(again[3]) is type(model[3])
    assert torch.equal(again(x), model(x))


def test_compressed_it_is_a_layer_of_torch_and_equal(tmp_path):
    model, x, _ = converted()
    kill_(model)
    small = vbdrop.compress(model, x, rewrite=False, recalibrate=False)
    assert [type(small.model[i]) for i in (0, 3, 7)] == [nn.Conv2d, nn.Conv2d, nn.Linear]
    assert (small.model[0].out_channels, small.model[3].in_channels, small.model[3].out_channels) == (4, 4, 6)
    assert (small.model[7].in_features, small.model[7].out_features) == (6, 3)
    torch.testing.assert_close(small.model(x), model(x), rtol=1e-5, atol=1e-6)
    small.save(tmp_path / "small.safetensors")
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=Network())
    assert torch.equal(loaded(x), small.model(x))


def test_in_the_middle_of_training_it_goes_on_as_a_noisy_layer_of_torch():
    model, x, _ = converted()
    kill_(model)
    plan, wanted = vbdrop.compress(model, x, rewrite=False, recalibrate=False).plan, model(x)
    with pytest.raises(ValueError, match="the weight that '0' computes, which a state dict does not have"):
        vbdrop.apply_plan_(plan, Network().state_dict())
    vbdrop.apply_plan_(plan, model)
    assert type(model[3]) is vbdrop.layers.Conv2d
    assert model[3].in_channels == 4
    torch.testing.assert_close(model(x), wanted, rtol=1e-5, atol=1e-6)


def test_noise_on_the_weights_is_refused_with_the_reason():
    model = nn.Sequential(Written(4, 3), nn.Linear(3, 2))
    report = vbdrop.convert_(model, vbdrop.Weights())
    assert "Written is a subclass that may compute something else" in report.left["0"]


def test_a_layer_that_shares_its_weight_keeps_its_class():
    first, second = Standardised(3, 3, 1), Standardised(3, 3, 1)
    second.weight = first.weight
    model = nn.Sequential(first, second, nn.Flatten(), nn.Linear(12, 2)).eval()
    x = torch.randn(2, 3, 2, 2)
    small = vbdrop.compress(model, x)
    assert type(small.model[0]) is Standardised
    torch.testing.assert_close(small.model(x), model(x))


def test_a_model_with_a_layer_that_changed_since_stays_as_it_was(monkeypatch):
    """`deterministic_` raises before it changes the first layer."""
    model = nn.Sequential(nn.Linear(4, 4), Written(4, 3))
    vbdrop.convert_(model, vbdrop.Units())
    kinds, state = [type(layer) for layer in model], {name: value.clone() for name, value in model.state_dict().items()}
    monkeypatch.setattr(Written, "forward", lambda self, x: torch.sin(x @ self.weight.T))
    with pytest.raises(ValueError, match=r"`model` cannot become plain: 1 was changed, it no longer computes"):
        vbdrop.deterministic_(model)
    assert [type(layer) for layer in model] == kinds
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_on_the_meta_device_it_becomes_plain_without_a_trial():
    model = nn.Sequential(nn.Linear(4, 4), Written(4, 3))
    vbdrop.convert_(model, vbdrop.Units())
    assert type(vbdrop.deterministic_(model.to("meta"))[1]) is nn.Linear
