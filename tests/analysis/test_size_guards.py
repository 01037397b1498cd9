import torch
from torch import nn

from vbdrop.analysis.size_guards import other_sizes


class Asking(nn.Module):
    def __init__(self, question):
        super().__init__()
        self.question = question

    def forward(self, x, y=None):
        x = x if y is None else x + y
        return x * 2 if self.question(x) else x


def asked(question, *args) -> set[tuple[tuple[tuple[int, int], ...], int]]:
    found = other_sizes(Asking(question), args, {})
    return {(other.axes, other.size) for other in found if "asks for" in other.reason}


def test_every_axis_is_asked_for():
    x = torch.zeros(4, 6, 8)
    assert asked(lambda x: x.shape[0] < 100, x) == {(((0, 0),), 128)}
    assert (((0, 1),), 10) in asked(lambda x: x.size(1) < 10, x)
    assert (((0, 2),), 13) in asked(lambda x: x.shape[-1] != 13, x)
    assert asked(lambda x: x.dim() == 3, x) == set()


def test_axes_that_belong_together_change_together():
    x = torch.zeros(4, 6)
    assert (((0, 1), (1, 1)), 7) in asked(lambda x: x.shape[1] < 7, x, x)


def test_every_axis_gets_other_sizes_alone_and_with_its_equals():
    found = other_sizes(nn.ReLU(), (torch.zeros(2, 3, 9, 9),), {})
    tried: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for other in found:
        tried.setdefault(other.axes, []).append(-other.size if other.is_last_resort else other.size)
    assert tried == {
        ((0, 0),): [4, 1],
        ((0, 1),): [6, 1, 2],
        ((0, 2),): [18, 4, 8, -3, -1],
        ((0, 3),): [18, 4, 8, -3, -1],
        ((0, 2), (0, 3)): [18, 4, 8, -3, -1],
    }
