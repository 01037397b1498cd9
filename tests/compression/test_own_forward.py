import pytest
import torch
from tests.analysis.test_head_blocks import FEATURES, Attention, X, by_default, kill_
from torch import nn
from torch.nn import functional as F

import vbdrop
from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import trace
from vbdrop.analysis.liveness import find_live
from vbdrop.compression.own_forward import changed_computation


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
    assert "depends on the number of channels" in small.left["heads"]
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

    assert "cannot be traced" in changed(nn.ReLU(), Refusing())
    assert changed(Leaky(0.2), Leaky(0.0)) == "its forward has different operations: relu instead of leaky_relu"
    assert "0.2 instead of 0.1" in changed(Leaky(0.1), Leaky(0.2))
    assert changed(Leaky(0.1), Leaky(0.1)) is None


class Leaky(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return F.leaky_relu(x, self.slope) if self.slope else torch.relu(x)


def changed(model, other):
    traced = trace(model, (X,))
    return changed_computation(traced, find_live(propagate(traced, model)), other, (X,), {})


class Heads(nn.Module):
    """An attention that keeps its number of heads under a name of its own, and leaves their size to the view."""

    def __init__(self, width=16, h=4):
        super().__init__()
        self.h, self.scale = h, (width // h) ** -0.5
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        query, key, value = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        weights = (query @ key.mT * self.scale).softmax(-1)
        return self.proj((weights @ value).transpose(1, 2).flatten(2))


class Tagger(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.words, self.norm, self.attention = nn.Embedding(30, 16), nn.LayerNorm(16), attention
        self.head = nn.Linear(16, 5)

    def forward(self, tokens):
        x = self.words(tokens)
        return self.head(x + self.attention(self.norm(x)))


class OtherFactor(Heads):
    """Its factor follows the width of the stream, which loses another share of its channels than the heads."""

    def forward(self, x):
        query, key, value = self.qkv(x).unflatten(-1, (3, self.h, 4)).permute(2, 0, 3, 1, 4)
        weights = (query @ key.mT * x.shape[-1] ** -0.5).softmax(-1)
        return self.proj((weights @ value).transpose(1, 2).flatten(2))


class Capped(nn.Module):
    """Caps its features softly, at a bound that follows their number."""

    def __init__(self):
        super().__init__()
        self.features, self.head = nn.Linear(6, 64), nn.Linear(64, 4)

    def forward(self, x):
        x = self.features(x)
        bound = 40 * x.shape[1] ** 0.5
        return self.head(bound * torch.tanh(x / bound))


class Shifted(Capped):
    """Adds the number of its features, times almost nothing."""

    def forward(self, x):
        x = self.features(x)
        return self.head(torch.relu(x + 1e-12 * (x * 0 + x.shape[1])))


class Ranked(Capped):
    """Weights its features by their position, times almost nothing."""

    def forward(self, x):
        x = self.features(x)
        return self.head(x * (1 + 1e-12 * torch.arange(x.shape[1])))


def kill_gates_(model):
    with torch.no_grad():
        for gate in model.modules():
            if isinstance(gate, vbdrop.layers.Gate):
                gate.log_sigma2[::2] = 20.0


@pytest.mark.parametrize("rewrite", [True, False])
@pytest.mark.parametrize("attention", [Heads, OtherFactor])
def test_heads_are_not_regrouped_where_equal_tokens_hide_it(attention, rewrite):
    torch.manual_seed(0)
    model, example = Tagger(attention()).double().eval(), torch.zeros(1, 6, dtype=torch.long)
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=example)
    kill_gates_(model)
    small = vbdrop.compress(model, example, recalibrate=False, rewrite=rewrite)
    tokens = torch.randint(0, 30, (4, 6))
    torch.testing.assert_close(small.model(tokens), model(tokens))


@pytest.mark.parametrize("kind", [Capped, Shifted, Ranked])
def test_numbers_that_follow_the_channels_are_not_changed(kind):
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(3, 6)
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    kill_gates_(model)
    for rewrite in (True, False):
        small = vbdrop.compress(model, x, recalibrate=False, rewrite=rewrite)
        assert (small.model.state_dict()["features.weight"].shape[0] == 64) or small.plan.program is not None
        torch.testing.assert_close(small.model(1e3 * x), model(1e3 * x))
    assert small.left


class Striped(nn.Module):
    """Names the class with the largest score; the first one is far ahead of the others for small inputs."""

    def __init__(self):
        super().__init__()
        self.features, self.even, self.odd = nn.Linear(6, 12), nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, x):
        x = torch.relu(self.features(x))
        return (self.even(x[:, ::2]) + self.odd(x[:, 1::2])).argmax(1)


def test_a_slice_that_would_take_other_channels_is_not_kept():
    torch.manual_seed(0)
    model, x = Striped().eval(), torch.zeros(4, 6)
    with torch.no_grad():
        model.features.weight[[2, 5, 6, 9]] = 0
        model.features.bias[[2, 5, 6, 9]] = -1.0
        model.even.bias[0] += 5
    many = 20 * torch.randn(2000, 6)
    for rewrite in (True, False):
        small = vbdrop.compress(model, x, rewrite=rewrite)
        assert torch.equal(small.model(many), model(many))


def test_what_a_forward_keeps_on_its_module_does_not_stop_a_compression():
    class Keeping(Capped):
        def forward(self, x):
            self.seen = torch.relu(self.features(x))
            return self.head(self.seen)

    model, x = Keeping().eval(), torch.randn(3, 6)
    with torch.no_grad():
        model.features.weight[:10] = 0
        model.features.bias[:10] = 0
    small = vbdrop.compress(model, x)
    assert small.model.features.out_features == 54
    assert not hasattr(model, "seen")
    torch.testing.assert_close(small.model(x), model(x))


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_channels_that_enter_a_branch_stay(scale):
    class Branching(Capped):
        def forward(self, x):
            large = x.abs().amax() > 20
            return self.head(torch.cond(large, lambda h: h.relu(), lambda h: h.tanh(), (self.features(x),)))

    model, x = Branching().eval(), torch.randn(3, 6)
    with torch.no_grad():
        model.features.weight[:10] = 0
    small = vbdrop.compress(model, x)
    assert small.model.features.out_features == 64
    assert "cond is not known" in small.left["features"]
    torch.testing.assert_close(small.model(scale * x), model(scale * x))
