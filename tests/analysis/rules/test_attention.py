import torch
from tests.compression.nets import randomise_, removed
from torch import nn
from torch.nn import functional as F

X = torch.randn(2, 5, 6).double()


class Attention(nn.Module):
    """Four heads of three features, with two heads of keys if they are grouped; the second head is not read."""

    def __init__(self, attend, keys=4, dead=(1,)):
        super().__init__()
        self.attend, self.keys = attend, keys
        self.query, self.key, self.value = nn.Linear(6, 12), nn.Linear(6, 3 * keys), nn.Linear(6, 3 * keys)
        self.out = nn.Linear(12, 6)
        randomise_(self)
        with torch.no_grad():
            for head in dead:
                self.out.weight[:, 3 * head : 3 * head + 3] = 0

    def forward(self, x):
        shape = (*x.shape[:-1], -1, 3)
        heads = (layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return self.out(self.attend(*heads).transpose(1, 2).flatten(2))


def explicit(query, key, value):
    weights = torch.softmax(query @ key.mT / 3**0.5, -1)
    return weights @ value


def masked(query, key, value):
    scores = (query @ key.mT).masked_fill(torch.ones(5, 5).tril() == 0, -torch.inf)
    return F.dropout(scores.softmax(-1), training=False) @ value


def rotary(query, key, value):
    angles = torch.arange(15.0).double().view(5, 3)

    def turned(x):
        return x * angles.cos() + torch.cat([-x[..., 2:], x[..., :2]], -1) * angles.sin()

    return F.scaled_dot_product_attention(turned(query), turned(key), value)


def repeated(query, key, value):
    key, value = (x[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for x in (key, value))
    return F.scaled_dot_product_attention(query, key, value)


def grouped(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def features(model):
    return tuple(model.get_submodule(name).out_features for name in ("query", "key", "value"))


def test_a_head_that_nothing_reads_goes_and_the_forward_stays():
    for attend in (F.scaled_dot_product_attention, explicit, masked, rotary):
        model = Attention(attend)
        removal = removed(model, X)
        assert features(removal.model) == (9, 9, 9)
        assert removal.model.out.in_features == 9
        assert removal.plan.program is None
        longer = torch.randn(3, 5, 6).double()
        assert torch.allclose(removal.model(longer), model(longer))


def test_of_grouped_heads_a_key_goes_with_all_of_its_queries():
    for attend in (repeated, grouped):
        assert features(removed(Attention(attend, keys=2, dead=(1,)), X).model) == (12, 6, 6)
        assert features(removed(Attention(attend, keys=2, dead=(0, 1, 2)), X).model) == (6, 3, 3)


def test_fused_heads_go_from_all_three_parts():
    class Fused(Attention):
        def __init__(self):
            super().__init__(F.scaled_dot_product_attention)
            self.fused = randomise_(nn.Linear(6, 36))

        def forward(self, x):
            heads = self.fused(x).reshape(len(x), 5, 3, -1, 3).permute(2, 0, 3, 1, 4).unbind(0)
            return self.out(self.attend(*heads).transpose(1, 2).flatten(2))

    model = Fused()
    removal = removed(model, X)
    assert removal.model.fused.out_features == 27
    assert removal.plan.program is None
    rows = [row for row in range(36) if row % 12 // 3 != 1]
    assert torch.equal(removal.model.fused.weight, model.fused.weight[rows])


def test_numbers_of_heads_that_a_forward_spells_out_are_set_where_they_are_attributes():
    class Spelled(nn.Module):
        def __init__(self):
            super().__init__()
            self.num_heads, self.attn_dim = 4, 12
            self.qkv, self.out = nn.Linear(6, 36), nn.Linear(12, 6)

        def forward(self, x):
            heads = self.qkv(x).reshape(len(x), 5, 3, self.num_heads, 3).permute(2, 0, 3, 1, 4).unbind(0)
            return self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(len(x), 5, self.attn_dim))

    model = randomise_(nn.Sequential(Spelled(), nn.ReLU(), nn.Linear(6, 2)))
    with torch.no_grad():
        model[0].out.weight[:, 3:9] = 0
    removal = removed(model, X)
    assert removal.plan.program is None
    assert (removal.model[0].num_heads, removal.model[0].attn_dim) == (2, 6)
    assert removal.model[0].qkv.out_features == 18


def test_a_bias_of_attention_loses_the_heads_too():
    class Biased(Attention):
        def __init__(self):
            super().__init__(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias()))
            self.table = nn.Parameter(torch.randn(9, 4, dtype=torch.float64))
            self.register_buffer("places", torch.arange(5)[:, None] - torch.arange(5) + 4)

        def bias(self):
            return self.table[self.places.view(-1)].view(5, 5, -1).permute(2, 0, 1).unsqueeze(0)

    removal = removed(Biased(), X)
    assert features(removal.model) == (9, 9, 9)
    assert removal.model.table.shape == (9, 3)


def test_heads_of_torchs_own_attention_go_from_a_new_forward():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.last = nn.MultiheadAttention(6, 3, batch_first=True), nn.Linear(6, 2)

        def forward(self, x):
            return self.last(self.attention(x, x, x, need_weights=False)[0])

    model = randomise_(Own())
    with torch.no_grad():
        model.attention.out_proj.weight[:, :2] = 0
    small = removed(model, X).model
    assert small.get_parameter("attention.in_proj_weight").shape == (12, 6)
    assert small.get_parameter("attention.out_proj.weight").shape == (6, 4)


def test_a_product_along_the_channels_keeps_them():
    class Gram(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 2)

        def forward(self, x):
            x = self.first(x)
            return self.last(x.mT @ x)

    model = randomise_(Gram())
    with torch.no_grad():
        model.last.weight[:, :4] = 0
    assert removed(model, X).model.get_submodule("first").out_features == 8
