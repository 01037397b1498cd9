import torch
from benchmarks.models.shortening import shorten_
from torch import nn


def layers(*sizes):
    return [nn.Linear(a, b) for a, b in sizes]


def test_of_equal_blocks_in_a_row_one_stays_and_two_at_the_beginning():
    model = nn.Sequential(*layers((2, 4), (4, 4), (4, 4), (4, 4), (4, 3), (3, 3)), nn.ReLU(), nn.ReLU())
    assert [name for name, _ in shorten_(model).named_children()] == ["0", "1", "4", "5", "6", "7"]
    assert model(torch.randn(5, 2)).shape == (5, 3)
    alike = nn.Sequential(nn.Sequential(*layers((4, 4), (4, 4), (4, 4))), nn.ModuleList(layers((4, 4), (4, 4), (4, 4))))
    shorten_(alike)
    assert (len(alike[0]), len(alike[1])) == (2, 3)  # nobody knows how a list is used
