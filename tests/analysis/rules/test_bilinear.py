import torch
from tests.compression.nets import randomise_, removed
from torch import nn


class Pair(nn.Module):
    """Two branches that meet in a bilinear layer; some of its weights and outputs are not needed."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 5), nn.Linear(4, 6)
        self.meet, self.last = nn.Bilinear(5, 6, 7), nn.Linear(7, 2)
        randomise_(self)
        with torch.no_grad():
            self.meet.weight[:, 1], self.meet.weight[:, :, [0, 3]] = 0, 0
            self.last.weight[:, [2, 5, 6]] = 0

    def forward(self, x):
        return self.last(torch.relu(self.meet(self.one(x), self.other(x))))


def test_a_bilinear_layer_loses_inputs_without_weights_and_outputs_that_nothing_reads():
    for rewrite in (True, False):
        small = removed(Pair(), torch.randn(3, 4).double(), rewrite=rewrite).model
        meet = small.get_submodule("meet")
        assert (meet.out_features, meet.in1_features, meet.in2_features) == meet.weight.shape == (4, 4, 4)
        assert len(meet.bias) == 4
        assert (small.one.out_features, small.other.out_features) == (4, 4)


def test_a_bilinear_product_of_ones_own_keeps_its_channels():
    class Own(Pair):
        def forward(self, x):
            return self.last(torch.relu(nn.functional.bilinear(self.one(x), self.other(x), 2 * self.meet.weight)))

    small = removed(Own(), torch.randn(3, 4).double()).model
    assert small.get_submodule("one").out_features == 5
