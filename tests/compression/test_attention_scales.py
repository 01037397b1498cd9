import pytest
import torch
from tests.analysis.test_head_blocks import FEATURES, Attention, X, by_default, kill_
from torch import nn
from torch.nn import functional as F

import vbdrop
from vbdrop.analysis.graph import trace
from vbdrop.compression.attention_scales import new_scale


def from_size(query, key, value):
    return torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, -1) @ value


def from_a_tensor(query, key, value):
    return torch.softmax(query @ key.mT / torch.full([], query.shape[-1] ** 0.5), -1) @ value


def given_from_size(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, scale=query.shape[-1] ** -0.5)


def dead_pairs(attend, size=1.0):
    """Heads with two dead features in queries, keys and values; with a small size, no input shows another scale."""
    torch.manual_seed(0)
    model = Attention(attend).eval()
    with torch.no_grad():
        for layer in (model.query, model.key):
            layer.weight *= size
            layer.bias *= size
    kill_(model.query, [(0, 1), (1, 2), (2, 3)])
    kill_(model.value, [(0, 1), (1, 2), (2, 3)])
    return model


@pytest.mark.parametrize("attend", [by_default, from_size, from_a_tensor, given_from_size])
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_a_forward_whose_scale_follows_the_size_keeps_its_features(attend, size):
    model = dead_pairs(attend, size)
    small = vbdrop.compress(model, X, rewrite=False)
    assert small.model.head_dim == FEATURES
    assert "depends on the number of features of a head" in small.left["heads"]
    assert torch.allclose(small.model(X), model(X), atol=1e-10)


@pytest.mark.parametrize("attend", [by_default, from_size, from_a_tensor, given_from_size])
def test_a_new_forward_has_the_scale_of_the_given_one(attend):
    model = dead_pairs(attend)
    small = vbdrop.compress(model, X, rewrite_gain=0.01)
    assert small.plan.program is not None
    assert small.model.state_dict()["query.weight"].shape[0] == 9
    assert torch.allclose(small.model(X), model(X), atol=1e-10)
    assert "heads" not in small.left


def test_a_model_that_cannot_be_traced_again_is_not_equal():
    class Refusing(nn.Module):
        def forward(self, x):
            if bool((x > 0).all()):
                raise ValueError
            return x

    assert "cannot be traced" in new_scale(trace(nn.ReLU(), (X,)), Refusing(), (X,), {})
    assert new_scale(trace(nn.LeakyReLU(0.2), (X,)), nn.ReLU(), (X,), {}) == "its forward has different operations"
