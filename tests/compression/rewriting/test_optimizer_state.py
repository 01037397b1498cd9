import pytest
import torch
from torch import nn

from vbdrop.compression.rewriting.optimizer_state import adopt_, check_optimizers, cut_states_, listed


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad])
def test_the_state_is_cut_like_its_parameter(kind):
    parameter = nn.Parameter(torch.randn(4, 3))
    optimizer = kind([parameter], **({"momentum": 0.9} if kind is torch.optim.SGD else {"lr": 0.1}))
    parameter.sum().backward()
    optimizer.step()
    before = {key: value.clone() for key, value in optimizer.state[parameter].items() if torch.is_tensor(value)}
    cut_states_([optimizer], parameter, {0: [0, 3], 1: [1]})
    for key, value in optimizer.state[parameter].items():
        if torch.is_tensor(value):
            assert torch.equal(value, before[key][[0, 3]][:, [1]] if value.dim() else before[key])


def test_a_state_of_another_shape_is_named():
    parameter = nn.Parameter(torch.randn(4, 3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.state[parameter]["row"] = torch.zeros(4)
    with pytest.raises(ValueError, match=r"state 'row' of 'fc.weight' has the shape \[4\]"):
        check_optimizers([optimizer], {"fc.weight": parameter}, {"fc.weight": {0: [0]}})
    check_optimizers([optimizer], {"fc.weight": parameter}, {})


def test_a_new_parameter_joins_the_group_of_the_other():
    first, second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second], "lr": 0.5}], lr=0.1)
    bias = nn.Parameter(torch.zeros(1))
    adopt_(optimizer, bias, beside=second)
    assert optimizer.param_groups[1]["params"] == [second, bias]
    assert optimizer.param_groups[0]["params"] == [first]


def test_the_states_of_all_optimizers_are_checked():
    parameter = nn.Parameter(torch.randn(4, 3))
    first, second = torch.optim.SGD([parameter], lr=0.1), torch.optim.SGD([parameter], lr=0.1)
    second.state[parameter]["row"] = torch.zeros(4)
    with pytest.raises(ValueError, match=r"state 'row' of 'weight' has the shape \[4\]"):
        check_optimizers([first, second], {"weight": parameter}, {"weight": {0: [0]}})


def test_one_optimizer_or_several_are_taken_each_once():
    first, second = (torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1) for _ in range(2))
    assert listed(None) == listed([]) == []
    assert listed(first) == listed((first, first)) == [first]
    assert listed([first, second]) == [first, second]
    with pytest.raises(TypeError, match=r"`optimizer` must be .* or None; got one with a Linear"):
        listed([first, nn.Linear(1, 1)])
    with pytest.raises(TypeError, match=r"`optimizer` must be .* or None; got a Linear"):
        listed(nn.Linear(1, 1))
