import torch
from tests.compression.nets import randomise_, removed
from torch import nn

X = torch.randn(2, 3, 4).double()


class Meets(nn.Module):
    """Six channels meet a parameter before they are read; two of them are not read."""

    def __init__(self, shape, meet):
        super().__init__()
        self.meet = meet
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)
        self.own = nn.Parameter(torch.zeros(shape))
        randomise_(self)
        with torch.no_grad():
            self.last.weight[:, [1, 4]] = 0

    def forward(self, x):
        return self.last(self.meet(self.first(x), self.own))


CASES = [
    (6, lambda x, own: x * own, (4,)),
    ((3, 6), lambda x, own: x + own, (3, 4)),
    ((1, 5, 6), lambda x, own: x + own[:, 1:4], (1, 5, 4)),
    ((6, 1, 1), lambda x, own: (x.mT.unsqueeze(-1) * own).squeeze(-1).mT, (4, 1, 1)),
    ((6, 3), lambda x, own: x - own.t(), (4, 3)),
    ((1, 1, 6), lambda x, own: torch.cat([own.expand(len(x), -1, -1), x], 1)[:, :3], (1, 1, 4)),
    ((7, 6), lambda x, own: x * own[torch.tensor([0, 3, 3])], (7, 4)),
    (18, lambda x, own: x * own.view(3, 6), (18,)),
]


def test_a_parameter_becomes_smaller_with_the_channels_that_it_meets():
    for shape, meet, expected in CASES[:-1]:
        removal = removed(Meets(shape, meet), X)
        assert removal.model.get_parameter("own").shape == expected
        assert removal.model.get_submodule("first").out_features == 4
        assert removal.left == {}
        assert removal.plan.program is None or shape == (1, 1, 6)


def test_a_parameter_with_channels_on_a_part_of_an_axis_keeps_them():
    shape, meet, expected = CASES[-1]
    removal = removed(Meets(shape, meet), X)
    assert removal.model.get_parameter("own").shape == expected
    assert removal.model.get_submodule("first").out_features == 6


def test_a_scale_of_zero_makes_a_constant():
    model = Meets(6, lambda x, own: x * own)
    with torch.no_grad():
        model.own[0] = 0
    assert removed(model, X).model.get_submodule("first").out_features == 3


def test_a_parameter_that_something_else_reads_too_keeps_its_shape():
    removal = removed(Meets((3, 6), lambda x, own: x + own + own.t().cumsum(0).sum()), X)
    assert removal.model.get_parameter("own").shape == (3, 6)
