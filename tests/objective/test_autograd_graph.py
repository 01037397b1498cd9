import torch
from torch import nn

from vbdrop.objective.autograd_graph import reads, starts, walk


def test_the_walk_ends_before_the_inputs():
    layer = nn.Linear(2, 2)
    x = torch.ones(1, 2, requires_grad=True).exp()
    y = layer(x)
    inside = [node.name().partition("Backward")[0] for node in walk(starts({"y": [y, 3]}), starts(x))]
    assert inside[0] == "Addmm"
    assert "Exp" not in inside


def test_every_read_of_a_parameter_is_found_once():
    layer, other = nn.Linear(2, 2), nn.Linear(2, 2)
    y = layer(layer(torch.ones(1, 2))).sum()
    found = reads(walk(starts(y)), [layer.bias, other.bias])
    assert len(found[id(layer.bias)]) == 2
    assert found[id(other.bias)] == set()
