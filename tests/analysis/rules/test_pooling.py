import torch
from tests.compression.nets import Branches, randomise_, removed
from torch import nn
from torch.nn import functional as F

IMAGES = torch.randn(2, 3, 6, 6).double()


class Pooled(nn.Module):
    def __init__(self, pool, inputs=5):
        super().__init__()
        self.pool = pool
        self.first, self.last = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(inputs, 2, 1)
        randomise_(self)
        with torch.no_grad():
            self.first.weight[:3] = 0

    def forward(self, x):
        return self.last(self.pool(torch.sigmoid(self.first(x))))


PRESERVING = [
    lambda x: F.max_pool2d(x, 3, padding=1),
    lambda x: F.max_pool2d(x, 3, stride=2, dilation=2, ceil_mode=True),
    lambda x: F.avg_pool2d(x, 2),
    lambda x: F.avg_pool2d(x, 4, ceil_mode=True),
    lambda x: F.avg_pool2d(x, 3, padding=1, count_include_pad=False),
    lambda x: F.adaptive_avg_pool2d(x, 4),
    lambda x: F.adaptive_max_pool2d(x, 2),
    lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    lambda x: F.interpolate(x, scale_factor=2),
    lambda x: F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
    lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"),
    lambda x: F.pad(x, (0, 0, 1, 1), mode="circular"),
    lambda x: x.mean((2, 3), keepdim=True),
    lambda x: x.amax(-1, keepdim=True).amin(2, keepdim=True),
    lambda x: x.flatten(2).mean(-1)[:, :, None, None],
]
ZEROS = [  # among zeros, since a sigmoid is below 2: the channels that stay have no effect, and are named
    lambda x: F.avg_pool2d(torch.relu(x - 2), 3, padding=1),
    lambda x: F.pad(torch.relu(x - 2), (1, 1, 1, 1)),
]
NOT_UNIFORM = [
    lambda x: F.avg_pool2d(x, 3, padding=1),
    lambda x: F.avg_pool2d(x, 3, divisor_override=4),
    lambda x: F.pad(x, (1, 1, 1, 1)),
    lambda x: F.pad(x, (1, 1, 1, 1), value=0.3),
    lambda x: x.sum((2, 3), keepdim=True),
]
ALONG_CHANNELS = [
    (lambda x: F.max_pool2d(x.transpose(1, 2), 2).transpose(1, 2), 2),
    (lambda x: F.pad(x, (0, 0, 0, 0, 1, 0), mode="circular"), 6),
    (lambda x: x.mean(1, keepdim=True).expand(-1, 5, -1, -1), 5),
]


def test_a_constant_channel_stays_one_where_it_stays_uniform():
    removal = removed(Branches(map(Pooled, [*PRESERVING, *ZEROS, *NOT_UNIFORM])), IMAGES)
    kept = [branch.first.out_channels for branch in removal.model]
    assert kept == [2] * len(PRESERVING + ZEROS) + [5] * len(NOT_UNIFORM)
    assert set(removal.left) == {f"{i}.first" for i in range(len(PRESERVING), len(kept))}


def test_what_works_along_the_channels_keeps_them():
    removal = removed(Branches(Pooled(*case) for case in ALONG_CHANNELS), IMAGES)
    assert [removal.model.get_submodule(f"{i}.first").out_channels for i in range(3)] == [5, 5, 5]
    assert len(removal.left) >= 3


def test_channels_stay_where_it_matters_where_a_maximum_was():
    model = Pooled(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2))
    removal = removed(model, IMAGES)
    assert removal.model.first.out_channels == 5
    assert "the positions of its maxima are used" in removal.left.values()


def test_pooling_in_one_and_three_dimensions():
    for d, convolution in ((1, nn.Conv1d), (3, nn.Conv3d)):
        pools = nn.Sequential(getattr(nn, f"MaxPool{d}d")(2), getattr(nn, f"AvgPool{d}d")(2))
        model = randomise_(nn.Sequential(convolution(2, 5, 1), nn.Sigmoid(), pools, convolution(5, 2, 1)))
        with torch.no_grad():
            model[0].weight[:3] = 0
        small = removed(model, torch.randn(2, 2, *[4] * d).double()).model
        assert small[0].out_channels == 2


class Normed(nn.Module):
    """Attention between the channels of each of two heads, which are divided by their norms over the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6, bias=False), nn.Linear(6, 2)

    def forward(self, x):
        heads = self.first(x).view(len(x), x.shape[1], -1, 3).permute(0, 2, 3, 1)
        heads = heads / heads.norm(dim=-1, keepdim=True).clamp_min(0.1)
        return self.last((heads @ heads.mT @ heads).permute(0, 3, 1, 2).flatten(2))


def test_a_norm_over_positions_leaves_heads_what_they_are():
    model = randomise_(Normed())
    with torch.no_grad():
        model.last.weight[:, 3:] = 0
    assert removed(model, torch.randn(3, 5, 4).double()).model.first.out_features == 3
