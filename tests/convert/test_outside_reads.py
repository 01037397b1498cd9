import pytest
import torch
from tests.convert.outside import Attention, TiedDecoder
from torch import nn

import vbdrop
from vbdrop.convert.outside_reads import why_unused

X = torch.randn(2, 5, 8)


def test_what_is_read_outside_its_forward_is_left_alone():
    model = nn.Sequential(nn.Linear(8, 16), Attention(), TiedDecoder(16, 4))
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    report = vbdrop.convert_(model, vbdrop.Weights(), example_inputs=X)
    assert set(report.converted) == {"0"}
    assert set(report.left.values()) == {"its weight is read outside its own forward"}
    assert set(report.left) == {"1.qkv", "1.proj", "2.encoder"}
    assert type(model[1].qkv) is nn.Linear
    assert all(torch.equal(model.get_parameter(name), value) for name, value in before.items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    vbdrop.ELBO(model, n_train=10)(model(X).square().mean()).backward()


def test_a_layer_that_the_forward_does_not_call_is_left_alone():
    class WithSpare(nn.Sequential):
        def forward(self, x):
            return self[0](x)

    model = WithSpare(nn.Linear(8, 4), nn.Linear(8, 4))
    report = vbdrop.convert_(model, vbdrop.Weights(), example_inputs={"x": X})
    assert report.left == {"1": "its forward is not called for the example inputs"}


def test_an_encoder_layer_keeps_its_fast_path_out_of_the_way():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert not {"linear1", "linear2"} & why_unused(layer, X).keys()


def test_inputs_that_the_model_does_not_accept_change_nothing():
    model = nn.Sequential(nn.Linear(8, 4))
    with pytest.raises(
        ValueError, match="`example_inputs` must be inputs that the model accepts; it raised RuntimeError"
    ):
        vbdrop.convert_(model, vbdrop.Weights(), example_inputs=torch.zeros(2, 3))
    assert type(model[0]) is nn.Linear
