import torch
from tests.compression.nets import randomise_, removed
from torch import nn
from torch.nn import functional as F

IMAGES = torch.randn(2, 3, 4, 4).double()


class Rearranged(nn.Module):
    """Eight channels, put together, of which what was not read goes."""

    def __init__(self, function, width, dead):
        super().__init__()
        self.function = function
        self.first, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(width, 2, 1)
        randomise_(self)
        with torch.no_grad():
            self.last.weight[:, dead] = 0

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def test_channels_that_are_put_together_go_together():
    cases = [
        (lambda x: F.glu(x, 1), 4, [1, 2], [0, 3, 4, 7], False),
        (lambda x: F.pixel_shuffle(x, 2), 2, [0], [4, 5, 6, 7], False),
        (lambda x: F.pixel_unshuffle(x, 2), 32, [0, 1, 2, 3, 8, 9, 10], [1, 2, 3, 4, 5, 6, 7], False),
        # channel 1 has no effect, and stays with channel 5, which has one
        (lambda x: torch.channel_shuffle(x, 2), 8, [0, 1, 2], [1, 2, 3, 5, 6, 7], True),
        (lambda x: (lambda a, b: a * F.gelu(b))(*x.chunk(2, 1)), 4, [3], [0, 1, 2, 4, 5, 6], False),
    ]
    for function, width, dead, left, one_stays in cases:
        model = Rearranged(function, width, dead)
        removal = removed(model, IMAGES)
        assert torch.equal(removal.model.get_submodule("first").weight, model.first.weight[left])
        assert list(removal.left) == ["first"] * one_stays


def test_a_gate_over_space_keeps_zeros_only():
    model = Rearranged(lambda x: F.glu(x, 3), 8, [])
    with torch.no_grad():
        model.first.weight[:3] = 0
        model.first.bias[1:3] = 0
    assert removed(model, IMAGES).model.get_submodule("first").out_channels == 6
