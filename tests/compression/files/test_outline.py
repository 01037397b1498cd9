import copy

import torch
from torch import nn

from vbdrop.compression.files.outline import allocated, filled, outline


class Aliased(nn.Module):
    """A tied weight, a weight in a plain list, and a buffer that is not stored."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.listed = [self.first.bias]
        self.register_buffer("kept", torch.rand(3), persistent=False)

    def forward(self, x):
        return self.second(self.first(x)) + self.listed[0] + self.kept


def test_a_model_that_keeps_an_activation_has_an_outline():
    model = nn.Linear(3, 3)
    model.last = model(torch.ones(1, 3))
    empty, _ = outline(model)
    assert torch.equal(empty.last, model.last)
    assert empty.last.grad_fn is None


def test_an_outline_takes_no_memory_and_leaves_the_model_alone():
    model = Aliased()
    before = copy.deepcopy(model.state_dict())
    empty, devices = outline(model)
    assert all(value.is_meta for value in empty.state_dict().values())
    assert torch.equal(empty.kept, model.kept)
    assert devices == dict.fromkeys(before, torch.device("cpu"))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_is_one_tensor_is_one_again():
    model = Aliased()
    model.first.weight.requires_grad_(False)
    state = copy.deepcopy(dict(model.state_dict()))
    again = filled(outline(model)[0], state, {})
    x = torch.rand(2, 3)
    assert torch.equal(again(x), model(x))
    assert again.second.weight is again.first.weight
    assert again.listed[0] is again.first.bias
    assert not again.first.weight.requires_grad
    assert again.first.bias.requires_grad


def test_what_are_two_tensors_do_not_become_one():
    shared = torch.ones(3)
    model = filled(outline(nn.ModuleList([nn.PReLU(3), nn.PReLU(3)]))[0], {"0.weight": shared, "1.weight": shared}, {})
    with torch.no_grad():
        model[0].weight.zero_()
    assert model[1].weight.tolist() == [1, 1, 1]


def test_the_memory_format_of_the_model_stays():
    model = nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
    again = filled(outline(model)[0], {name: value.contiguous() for name, value in model.state_dict().items()}, {})
    assert again.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(again.weight, model.weight)


def test_recurrent_layers_are_filled():
    model = nn.LSTM(3, 4)
    again = filled(outline(model)[0], dict(model.state_dict()), {})
    x = torch.rand(2, 5, 3)
    assert torch.equal(again(x)[0], model(x)[0])


def test_an_outline_becomes_a_model_that_can_be_loaded_into():
    model = Aliased()
    empty, devices = outline(model)
    again = allocated(empty, devices)
    assert {value.device for value in again.state_dict().values()} == {torch.device("cpu")}
    assert torch.equal(again.kept, model.kept)
    again.load_state_dict(model.state_dict())
    x = torch.rand(2, 3)
    assert torch.equal(again(x), model(x))
    assert all(value.is_meta for value in empty.state_dict().values())
