"""A network that trains plainly is the plain one, to the bit; afterwards it is as if it had come trained."""

import copy

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.methods.shared.pretraining import start_variances_, train_plainly_, without_variances_
from vbdrop.models import LeNet5

MODES = {
    "weights": (vbdrop.Weights(log_sigma2=-4.0),),
    "units": (vbdrop.Units(),),
    "both": (vbdrop.Weights(log_sigma2=-4.0), vbdrop.Units()),
}
in_every_mode = pytest.mark.parametrize("modes", MODES.values(), ids=MODES)


@in_every_mode
def test_outputs_and_gradients_are_those_of_the_plain_network(modes):
    torch.manual_seed(0)
    plain = nn.Sequential(LeNet5(), nn.Dropout(0.5))
    model = copy.deepcopy(plain)
    vbdrop.convert_(model, *modes)
    without_variances_(model)
    inputs = torch.rand(3, 1, 28, 28)
    found = []
    for net in (plain, model):
        net.train()
        train_plainly_(net, True)
        torch.manual_seed(1)  # of the dropout: what is not variational stays in training mode
        net(inputs).square().sum().backward()
        found.append({name: value.grad for name, value in net.named_parameters() if value.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[1][name], gradient) for name, gradient in found[0].items())


@in_every_mode
def test_the_variances_start_as_at_a_conversion_of_the_trained_network(modes):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    model = copy.deepcopy(plain)
    vbdrop.convert_(model, *modes)
    without_variances_(model)
    train_plainly_(model, True)
    with torch.no_grad():
        for net in (plain, model):
            net[0].weight[0] = 1e-3  # so small that it would start dead at the variance of the others
    vbdrop.convert_(plain, *modes)
    start_variances_(model)
    train_plainly_(model, False)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in plain.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(module.training for module in model.modules())
