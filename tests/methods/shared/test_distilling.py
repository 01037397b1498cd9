"""The teacher inside a model."""

import copy

import pytest
import torch
from torch import nn

from vbdrop.methods.shared.distilling import add_teacher_, distillation_loss, remove_teacher_, teach_, teacher_of


@pytest.fixture
def model():
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model = copy.deepcopy(plain)
    add_teacher_(model, plain)
    return model


def test_a_model_that_agrees_with_its_teacher_has_no_distance(model):
    x = torch.randn(5, 4)
    assert distillation_loss(model, x, model(x)).item() == pytest.approx(0.0, abs=1e-6)
    assert distillation_loss(model, x, model(x) + torch.tensor([3.0, 0.0, 0.0])).item() > 0.1


def test_the_forward_and_the_optimizer_do_not_see_the_teacher(model):
    assert len(list(model.parameters())) == 4
    x = torch.randn(5, 4)
    before = model(x)
    remove_teacher_(model)
    assert torch.equal(model(x), before)
    with pytest.raises(ValueError, match="`model` must have a teacher"):
        distillation_loss(model, x, before)


def test_a_checkpoint_holds_the_teacher(model):
    nn.init.ones_(model[0].weight)
    teach_(model)
    state = copy.deepcopy(model.state_dict())
    nn.init.zeros_(model[0].weight)
    other = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    add_teacher_(other, copy.deepcopy(other))
    other.load_state_dict(state)
    assert torch.equal(teacher_of(other)[0].weight, torch.ones(8, 4))
