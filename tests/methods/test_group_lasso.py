"""Group lasso: the groups and their norms, the cut, and units that go."""

import pytest
import torch
from tests.trained import above, below
from torch import nn

from vbdrop.methods import GroupLasso
from vbdrop.methods.group_lasso import group_norms, groups_of
from vbdrop.methods.shared.masks import mask_of
from vbdrop.models import LeNet5
from vbdrop.train.method import Step


def test_the_norms_are_those_of_rows_and_columns():
    weight = torch.randn(4, 3, 5, 5)
    torch.testing.assert_close(group_norms(weight, 0), weight.flatten(1).norm(dim=1))
    torch.testing.assert_close(group_norms(weight, 1), weight.transpose(0, 1).flatten(1).norm(dim=1))


def test_a_group_at_zero_has_a_finite_gradient():
    weight = torch.zeros(3, 2, requires_grad=True)
    group_norms(weight, 0).sum().backward()
    assert not weight.grad.any()


def test_the_output_units_and_the_images_channels_have_no_group():
    model = LeNet5()
    found = [(layer, axis) for layer, _, axis in groups_of(model)]
    expected = [(model.conv1, 0), (model.conv2, 0), (model.conv2, 1), (model.fc1, 0), (model.fc1, 1), (model.fc2, 1)]
    assert found == expected


def test_the_penalty_is_the_sum_of_the_norms_until_the_cut():
    method = GroupLasso(cut=0.5)
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        model[1].weight.copy_(torch.tensor([[2.0, -1.0]]))
    assert method.penalty(model).item() == pytest.approx(5 + 0 + 3 + 4 + 2 + 1)


def test_small_groups_are_cut_and_stay_zero():
    method = GroupLasso(cut=0.5, threshold=0.1)
    model = method.build(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
    with torch.no_grad():
        for layer in model:
            layer.weight.fill_(0.5)
        model[0].weight[1] = 0.05  # a unit's row
        model[0].weight[:, 2] = -0.05  # an input's column
    method.after_step(model, Step(3, 10, 0.0, 1, 1))
    assert mask_of(model[0]).all()
    method.after_step(model, Step(4, 10, 0.0, 1, 1))
    assert (model[0].weight == 0).tolist() == [[False, False, True, False], [True] * 4, [False, False, True, False]]
    assert model[1].weight.all()
    model[0].weight.data += 1
    method.after_step(model, Step(7, 10, 0.0, 1, 1))
    assert not model[0].weight[1].any()


@pytest.mark.trained
def test_units_go_as_a_whole(task):
    method = GroupLasso(weight=5e-3, threshold=0.02)
    plain = method.finish(task.fit(method))
    first = plain.hidden[0].weight
    inputs, units = (first != 0).any(0), (first != 0).any(1)
    above(40, int((~inputs).sum()), mean=112.0, sd=2.9)
    assert torch.equal(first != 0, units[:, None] & inputs)
    below(50, task.error(plain), mean=13.8, sd=2.6)
