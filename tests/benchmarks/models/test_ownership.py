import torch
from benchmarks.models.ownership import everything, owned, product_weights
from torch import nn

from vbdrop.analysis.channel_groups import find_groups
from vbdrop.analysis.graph import trace


def test_weights_count_once_for_each_number_that_a_dead_unit_owns():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 5, 1), nn.Conv2d(5, 2, 1))
    found = find_groups(trace(model.eval(), (torch.zeros(2, 3, 6, 6),)), model, {"1", "2", "3"})
    sizes = product_weights(model)
    assert sizes == {"0.weight": 12, "1.weight": 36, "2.weight": 20, "3.weight": 10}
    assert owned(found, everything(found), sizes) == sizes
    first, second = torch.tensor([1, 0, 0, 0]).bool(), torch.tensor([1, 1, 0, 0, 0]).bool()
    dead = dict(enumerate([first, second]))
    # of 5 x 4 weights, 3 x 3 are between live channels
    assert owned(found, dead, sizes) == {"0.weight": 3, "1.weight": 9, "2.weight": 11, "3.weight": 4}


def test_layers_that_groups_do_not_reach_count_in_the_whole():
    model = nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1), nn.Linear(4, 2))
    found = find_groups(trace(model.eval(), (torch.zeros(2, 3),)), model, {"0", "2"})
    assert owned(found, everything(found), product_weights(model)) == {"0.weight": 0, "2.weight": 0}


def test_attention_and_tied_weights_count_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight

    sizes = {"attention.in_proj_weight": 48, "attention.out_proj.weight": 16, "first.weight": 16}
    assert product_weights(Tied()) == sizes
