import pytest
import torch
from tests.compression.nets import randomise_
from torch import nn
from torch.nn import functional as F

import vbdrop
from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import trace
from vbdrop.analysis.liveness import find_live
from vbdrop.convert.attentions import open_attentions_
from vbdrop.layers import OpenAttention

HEADS, FEATURES = 3, 5
X = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0)).double()
OTHER_LENGTH = torch.randn(3, 9, 6, generator=torch.Generator().manual_seed(1)).double()


def explicit(query, key, value):
    return torch.softmax(query @ key.mT / FEATURES**0.5, -1) @ value


def scaled(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, scale=FEATURES**-0.5)


def by_default(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


def causal(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.3)


def query_first(query, key, value):
    return (query * FEATURES**-0.5 @ key.transpose(-2, -1)).softmax(-1) @ value


def grouped(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, scale=0.4, enable_gqa=True)


def repeated(query, key, value):
    key, value = (x[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for x in (key, value))
    return F.scaled_dot_product_attention(query, key, value, scale=0.4)


class Attention(nn.Module):
    """Heads by one view of ``head_dim`` features for queries, keys and values."""

    def __init__(self, attend, heads=HEADS, keys=HEADS):
        super().__init__()
        self.attend, self.head_dim = attend, FEATURES
        sizes = (heads * FEATURES, keys * FEATURES, keys * FEATURES)
        self.query, self.key, self.value = (nn.Linear(6, size) for size in sizes)
        self.out = nn.Linear(heads * FEATURES, 6)
        randomise_(self.double())

    def forward(self, x):
        shape = (*x.shape[:-1], -1, self.head_dim)
        heads = (layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return self.out(self.attend(*heads).transpose(1, 2).flatten(2))


class Fused(Attention):
    """The same with one projection, and sizes that the forward spells out from attributes."""

    def __init__(self, attend):
        super().__init__(attend)
        self.num_heads = HEADS
        self.qkv = nn.Linear(6, 3 * HEADS * FEATURES)
        self.attn_dim = HEADS * FEATURES
        del self.query, self.key, self.value
        randomise_(self.double())

    def forward(self, x):
        batch, length, _ = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        return self.out(self.attend(*qkv.unbind(0)).transpose(1, 2).reshape(batch, length, self.attn_dim))


@torch.no_grad()
def kill_(layer, features, of=FEATURES, start=0):
    """Set the given features of each head to zero: rows of a weight, with their biases."""
    for head, dead in enumerate(features):
        for feature in dead:
            layer.weight[start + head * of + feature] = 0
            layer.bias[start + head * of + feature] = 0


def checked(model, **options):
    """The small model, equal to the given one; for other lengths, too, with its own forward."""
    small = vbdrop.compress(model.eval(), X, **options)
    for x in (X, OTHER_LENGTH) if small.plan.program is None else (X, X[:1].expand(3, -1, -1)):
        assert torch.allclose(small.model(x), model(x), atol=1e-10)
    return small


@pytest.mark.parametrize("attend", [explicit, scaled, causal, query_first])
def test_features_of_queries_keys_and_values_go_in_pairs_and_the_forward_stays(attend):
    model = Attention(attend)
    kill_(model.query, [(0,), (1, 2), (4,)])
    kill_(model.key, [(3,), (1, 4), (0, 2)])
    kill_(model.value, [(0, 1, 4), (), (2, 3)])
    with torch.no_grad():
        model.out.weight[:, [5, 8]] = 0  # two features of the second head, which nothing reads
    small = checked(model)
    assert type(small.model) is Attention
    assert small.model.head_dim == 3  # the most that a head needs
    assert [layer.out_features for layer in (small.model.query, small.model.key, small.model.value)] == [9, 9, 9]
    assert small.model.out.in_features == 9
    assert "the heads of an attention need equally many" in small.left["value"]


def test_values_lose_other_features_than_queries_in_a_new_forward():
    model = Attention(scaled)
    kill_(model.query, [(0, 1, 2), (1, 2, 3), (2, 3, 4)])
    kill_(model.value, [(0,), (1,), (2,)])
    small = checked(model, rewrite_gain=0.01)
    shapes = {name: list(tensor.shape) for name, tensor in small.model.state_dict().items()}
    assert (shapes["query.weight"], shapes["key.weight"], shapes["value.weight"]) == ([6, 6], [6, 6], [12, 6])
    assert small.plan.program is not None


def test_with_the_forward_kept_values_have_as_many_features_as_queries():
    model = Attention(scaled)
    kill_(model.query, [(0, 1, 2), (1, 2, 3), (2, 3, 4)])
    kill_(model.value, [(0,), (1,), (2,)])
    small = checked(model, rewrite=False)
    assert (small.model.query.out_features, small.model.value.out_features, small.model.head_dim) == (12, 12, 4)


def test_a_constant_of_a_key_has_no_effect():
    model = Attention(scaled)
    kill_(model.key, [(0,), (1,), (2,)])
    kill_(model.value, [(0,), (1,), (2,)])
    with torch.no_grad():
        model.key.bias[:] = 2.0
    assert checked(model).model.key.out_features == 12


def test_a_constant_of_a_query_stays():
    model = Attention(scaled)
    kill_(model.query, [(0,), (1,), (2,)])
    kill_(model.value, [(0,), (1,), (2,)])
    with torch.no_grad():
        model.query.bias[:] = 2.0
    assert checked(model, rewrite=False).model.query.out_features == 15


def test_dead_heads_go_besides_features_of_the_others():
    model = Attention(explicit)
    kill_(model.query, [(0,), (), (2, 3)])
    kill_(model.value, [(1,), (0, 1, 2, 3, 4), (0, 4)])
    small = checked(model)
    assert (small.model.head_dim, small.model.value.out_features, small.model.query.out_features) == (4, 8, 8)


@pytest.mark.parametrize("attend", [grouped, repeated])
def test_a_key_loses_what_all_of_its_queries_do_not_need(attend):
    model = Attention(attend, heads=4, keys=2)
    kill_(model.query, [(0, 1), (0, 2), (3, 4), (3,)])
    kill_(model.value, [(4,), (1,)])
    small = checked(model, rewrite=False)
    assert (small.model.query.out_features, small.model.key.out_features, small.model.out.in_features) == (16, 8, 16)


def test_one_projection_loses_features_of_all_three_parts():
    model = Fused(query_first)
    kill_(model.qkv, [(0, 1), (1, 4), (2, 3)])
    kill_(model.qkv, [(4, 2), (0, 1), (0, 3)], start=2 * HEADS * FEATURES)
    small = checked(model)
    assert (small.model.head_dim, small.model.attn_dim, small.model.qkv.out_features) == (3, 9, 27)


def test_an_opened_attention_has_its_own_number_of_features_for_values(tmp_path):
    model = opened()
    small = vbdrop.compress(model, X.float())
    attention = small.model[0].self_attn
    assert isinstance(attention, OpenAttention)
    assert (list(attention.in_proj_weight.shape), attention.out_proj.in_features) == ([2 + 2 + 4, 6], 4)
    assert torch.allclose(small.model(OTHER_LENGTH.float()), model(OTHER_LENGTH.float()), atol=1e-5)
    small.save(tmp_path / "small.safetensors")
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=opened())
    assert torch.equal(loaded(OTHER_LENGTH.float()), small.model(OTHER_LENGTH.float()))
    assert vbdrop.export(small, tmp_path / "small.onnx").verified


def opened():
    """An encoder layer with two heads of three features; two features of queries and one of values are dead in each."""
    model = nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)).eval()
    open_attentions_(model)
    randomise_(model)
    attention = model[0].self_attn
    with torch.no_grad():
        for row in (0, 1, 4, 5, 6 + 6 + 2, 6 + 6 + 3):
            attention.in_proj_weight[row] = 0
            attention.in_proj_bias[row] = 0
    return model


def test_a_converted_model_loses_a_dead_head_and_features_of_the_others():
    torch.manual_seed(0)
    model = nn.Sequential(nn.TransformerEncoderLayer(12, 3, 8, batch_first=True)).eval()
    x = torch.randn(2, 4, 12)
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    attention = model[0].self_attn
    with torch.no_grad():
        (gate,) = attention.out_proj.gate.all_gates
        gate.weight[:] = torch.tensor([0.5, 1.5, 2.0])
        gate.log_sigma2[1] = 20.0
        for row in (0, 3, 12 + 9, 8):  # of the first and the last head: in queries, in keys, in queries
            attention.in_proj_weight[row] = 0
            attention.in_proj_bias[row] = 0
    small = vbdrop.compress(model, x, recalibrate=False)
    assert small.model[0].self_attn.in_proj_weight.shape[0] == 2 * (2 + 2 + 4)
    assert torch.allclose(small.model(x), model.eval()(x), atol=1e-5)


def test_gates_on_the_outputs_of_queries_and_values_remove_pairs():
    torch.manual_seed(0)
    model = Attention(scaled)
    mode = vbdrop.Units(outputs=lambda module, name: name.endswith(("query", "value")))
    vbdrop.convert_(model, mode, example_inputs=X)
    with torch.no_grad():
        for layer in (model.query, model.value):
            layer.output_gate.log_sigma2[[0, 1, 6, 7, 12, 13]] = 20.0
    small = vbdrop.compress(model, X, recalibrate=False)
    assert (small.model.query.out_features, small.model.key.out_features, small.model.head_dim) == (9, 9, 3)
    assert torch.allclose(small.model(X), model.eval()(X), atol=1e-10)


def normalised(query, key, value):
    return scaled(F.layer_norm(query, (query.shape[-1],)), key, value)


def one_head_alone(query, key, value):
    return explicit(query, key, value) + value[:, 1:2]


@pytest.mark.parametrize("attend", [normalised, one_head_alone])
def test_heads_that_something_else_reads_keep_their_features(attend):
    model = Attention(attend)
    kill_(model.query, [(0, 1), (1, 2), (2, 3)])
    kill_(model.value, [(0, 1), (1, 2), (2, 3)])
    assert checked(model, rewrite=False).model.query.out_features == 15


class FeaturesFirst(Attention):
    """The features of all heads lie before the heads where the output projection reads them."""

    def forward(self, x):
        shape = (*x.shape[:-1], -1, self.head_dim)
        heads = (layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return self.out(self.attend(*heads).permute(0, 2, 3, 1).flatten(2))


def test_an_order_in_which_heads_lie_side_by_side_keeps_their_features():
    model = FeaturesFirst(scaled)
    kill_(model.query, [(0, 1), (1, 2), (2, 3)])
    kill_(model.value, [(0, 1), (2, 3), (3, 4)])
    small = checked(model, rewrite_gain=0.0)
    assert small.model.state_dict()["value.weight"].shape[0] == 15


def test_without_leave_to_split_heads_die_as_a_whole():
    model = Attention(scaled).eval()
    kill_(model.query, [(0,), (0,), (0,)])
    kill_(model.value, [(0,), (0,), (0,)])
    traced = trace(model, (X,))
    for split, present in ((False, 15), (True, 12)):
        liveness = find_live(propagate(traced, model, split_heads=split))
        assert liveness.splits_heads == split
        assert int(liveness.kept(liveness.uses["value.weight"].first.outputs).sum()) == present


@pytest.mark.parametrize("seed", range(10))
def test_random_dead_features_leave_the_outputs_as_they_are(seed):
    generator = torch.Generator().manual_seed(seed)
    attend = [explicit, scaled, by_default, causal, query_first][seed % 5]
    model = (Fused if seed % 2 else Attention)(attend)
    layers = (
        [(model.qkv, part * HEADS * FEATURES) for part in range(3)]
        if seed % 2
        else [(layer, 0) for layer in (model.query, model.key, model.value)]
    )
    for layer, start in layers:
        counts = torch.randint(0, FEATURES + 1, (HEADS,), generator=generator).tolist()
        kill_(layer, [torch.randperm(FEATURES, generator=generator)[:count].tolist() for count in counts], start=start)
    with torch.no_grad():
        model.out.weight[:, torch.rand(HEADS * FEATURES, generator=generator) < 0.3] = 0
    checked(model, rewrite=bool(seed % 3), rewrite_gain=0.0 if seed % 4 else 0.1)
