import pytest
import torch
from tests.compression.nets import randomise_, removed
from torch import nn
from torch.nn import functional as F

X = torch.randn(2, 5, 6).double()


class Masked(nn.Module):
    """Four heads of three features, with a mask that has a slice for each; the second head is not read."""

    def __init__(self, mask, attend=F.scaled_dot_product_attention):
        super().__init__()
        self.mask, self.attend, self.n_heads = mask, attend, 4
        self.query, self.key, self.value, self.out = (nn.Linear(*sizes) for sizes in [(6, 12)] * 3 + [(12, 6)])
        randomise_(self)
        with torch.no_grad():
            self.out.weight[:, 3:6] = 0

    def heads(self, x):
        return (layer(x).view(x.shape[0], 5, -1, 3).transpose(1, 2) for layer in (self.query, self.key, self.value))

    def forward(self, x):
        heads = self.attend(*self.heads(x), self.mask(self.n_heads, x))
        return self.out(heads.transpose(1, 2).flatten(2))


def eager(query, key, value, mask):
    return (query @ key.mT + mask).softmax(-1) @ value


def causal(size):
    return torch.ones(size, size, dtype=torch.bool).tril()


def selected(heads, x):
    return torch.where(causal(5), torch.zeros(1, heads, 5, 5, dtype=x.dtype), -9.0)


def filled(heads, x):
    return x.new_zeros(x.shape[0], heads, 5, 5).masked_fill(~causal(5), -9.0) * 2


def expanded(heads, x):
    return x.mean(-1)[:, None, None, :].expand(x.shape[0], heads, 5, 5).clone()


@pytest.mark.parametrize("mask", [selected, filled, expanded])
@pytest.mark.parametrize("attend", [F.scaled_dot_product_attention, eager])
def test_a_mask_that_is_the_same_for_all_heads_loses_heads(mask, attend):
    removal = removed(Masked(mask, attend), X)
    assert removal.model.query.out_features == 9
    assert removal.plan.program is None
    assert removal.model.n_heads == 3


def test_a_number_of_heads_that_is_no_attribute_needs_a_new_forward():
    removal = removed(Masked(lambda heads, x: selected(4, x)), X)
    assert removal.plan.program is not None
    assert removal.model.get_submodule("query").out_features == 9
    kept = removed(Masked(lambda heads, x: selected(4, x)), X, rewrite=False)
    assert kept.model.query.out_features == 12


def test_two_attentions_with_one_mask_lose_the_heads_that_neither_reads():
    class Two(nn.Module):
        def __init__(self, other):
            super().__init__()
            self.first, self.second = Masked(None), Masked(None)
            with torch.no_grad():
                self.second.out.weight[:, 3 * other : 3 * other + 3] = 0

        def forward(self, x):
            masks = []
            self.first.mask = lambda heads, x: masks.append(selected(heads, x)) or masks[0]
            self.second.mask = lambda heads, x: masks[0]
            return self.second(self.first(x))

    with torch.no_grad():
        model = Two(1)
        assert removed(model, X).model.get_submodule("second.query").out_features == 9
        model = Two(2)
        model.second.out.weight[:, 3:6] = 1.0
        assert removed(model, X).model.get_submodule("second.query").out_features == 12


def distinct(heads, x):
    slopes = torch.arange(heads, dtype=x.dtype).view(-1, 1, 1)
    return torch.zeros(1, heads, 5, 5, dtype=x.dtype) + slopes * x[:1, :1, :1]


def read_before(heads, x):
    mask = selected(heads, x)
    return mask + mask.cumsum(1)[:, -1:]


@pytest.mark.parametrize("mask", [distinct, read_before])
def test_the_heads_stay_if_the_mask_differs_or_something_else_reads_it(mask):
    removal = removed(Masked(mask), X)
    assert removal.model.query.out_features == 12
    assert any("its mask has a slice for each head" in reason for reason in removal.left.values())


def test_the_heads_stay_if_the_mask_is_read_later_or_returned():
    class Later(Masked):
        def forward(self, x):
            mask = self.mask(self.n_heads, x)
            heads = F.scaled_dot_product_attention(*self.heads(x), mask)
            return self.out(heads.transpose(1, 2).flatten(2)) + mask.cumsum(1)[:, -1, :, :1], mask

    assert removed(Later(selected), X).model.query.out_features == 12
