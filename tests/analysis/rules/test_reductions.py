import torch
from tests.compression.nets import randomise_, removed
from torch import nn

from vbdrop.layers import CountedNorm

X = torch.randn(4, 5).double()


class Root(nn.Module):
    """RMS normalisation as many models write it."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3))


class Centred(nn.LayerNorm):
    """Layer normalisation as many models write it."""

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


@torch.no_grad()
def normed(norm) -> nn.Module:
    """A layer with two units that are zero, and two that are not read."""
    model = randomise_(nn.Sequential(nn.Linear(5, 8), norm, nn.Linear(8, 3)))
    for parameter in model[0].parameters():
        parameter[:2] = 0
    model[2].weight[:, [0, 1, 6, 7]] = 0
    return model


def test_zeros_that_nothing_reads_behind_a_norm_go_and_still_count():
    for norm in (nn.LayerNorm(8), nn.LayerNorm(8, elementwise_affine=False), nn.RMSNorm(8, eps=1e-2), Root(8)):
        small = removed(normed(norm), X).model
        assert small.get_submodule("0").out_features == 6


def test_zeros_that_are_read_behind_a_norm_stay():
    model = normed(nn.LayerNorm(8))
    with torch.no_grad():
        model[2].weight[:, :2] = 1
    assert removed(model, X).model.get_submodule("0").out_features == 8


def test_what_is_not_zero_stays_in_front_of_a_norm():
    model = normed(nn.LayerNorm(8))
    with torch.no_grad():
        model[0].bias[:2] = 1
    removal = removed(model, X)
    assert removal.model.get_submodule("0").out_features == 8
    assert any("reads every channel" in reason for reason in removal.left.values())


def test_the_module_of_a_norm_counts_where_the_forward_stays():
    for norm in (nn.LayerNorm(8), nn.LayerNorm(8, elementwise_affine=False), nn.RMSNorm(8, eps=1e-2), Centred(8)):
        small = removed(normed(norm), X, rewrite=False).model
        assert small[0].out_features == 6
        assert isinstance(small[1], CountedNorm)


def test_without_rewriting_a_norm_that_is_no_known_module_keeps_everything():
    assert removed(normed(Root(8)), X, rewrite=False).model[0].out_features == 8


def test_a_small_norm_can_lose_more():
    """The variance of a norm that counts is seen through, as long as its module computes it."""
    small = removed(normed(nn.LayerNorm(8)), X, rewrite=False).model
    with torch.no_grad():
        for parameter in small[0].parameters():
            parameter[2] = 0
        small[2].weight[:, 2] = 0
    again = removed(small, X, rewrite=False).model
    assert (again[0].out_features, again[1].count, len(again[1].weight)) == (5, 8, 5)
