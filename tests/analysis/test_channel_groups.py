import pytest
import torch
from tests.compression.nets import NETS, conv_norm
from torch import nn
from torch.nn import functional as F

from vbdrop.analysis.channel_groups import find_groups
from vbdrop.analysis.graph import trace


def groups_of(model, x, gated=None, norms=()):
    model = model.eval()
    layers = {name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    return find_groups(trace(model, (x,)), model, layers if gated is None else gated, norms)


def test_a_residual_stream_is_one_group():
    found = groups_of(NETS["resnet"].build(), NETS["resnet"].example())
    streams = {group.name: (group.units, group.readers) for group in found.groups if len(group.readers) > 1}
    assert streams == {
        "stem.0": (8, ["blocks.0.conv1.0", "blocks.1.conv1.0", "blocks.2.conv1.0", "blocks.2.shortcut.0"]),
        "blocks.2.conv2.0": (12, ["blocks.3.conv1.0", "head"]),
    }
    assert len(found.groups) == 6
    assert (found.weights, found.macs) == (1.0, 1.0)
    # 8 stem, 2 x 8 first and 2 x 8 last convolutions of blocks, 12 of the third, 12 of its shortcut, by weights
    weights = 3 * 9 + 2 * 2 * 8 * 9 + 12 * 9 + 12
    assert next(group.weights for group in found.groups if group.name == "stem.0") == weights


def test_the_parts_of_a_concatenation_are_groups_of_their_own():
    found = groups_of(NETS["densenet"].build(), NETS["densenet"].example())
    assert [group.name for group in found.groups] == ["stem", "convs.0", "convs.1", "convs.2", "transition"]
    assert found.readers["convs.1"].tolist() == [[0, i] for i in range(8)] + [[1, i] for i in range(4)]


def test_channels_go_through_depthwise_convolutions_and_in_the_same_places_of_groups():
    model = nn.Sequential(
        conv_norm(3, 8), conv_norm(8, 8, groups=8), conv_norm(8, 8, groups=2), nn.Conv2d(8, 2, 1), nn.Flatten()
    )
    found = groups_of(model, torch.randn(2, 3, 4, 4))
    assert [(group.name, group.units) for group in found.groups] == [("0.0", 4), ("2.0", 4)]
    assert found.readers["2.0"][:, 1].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert found.left["1.0"] == "its input channels are removed with its output channels"


def test_flattened_pixels_and_heads_share_the_gate_of_their_channel():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out, self.last = nn.Linear(6, 36), nn.Linear(12, 6), nn.Linear(30, 2)

        def forward(self, x):
            q, k, v = self.qkv(x).view(len(x), 5, 3, 4, 3).permute(2, 0, 3, 1, 4)
            x = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return self.last(x.mT.flatten(1))

    found = groups_of(Attention(), torch.randn(2, 5, 6))
    assert [(group.name, group.units) for group in found.groups] == [("qkv", 4), ("out", 6)]
    assert found.readers["out"][:, 1].tolist() == [h for h in range(4) for _ in range(3)]
    assert found.readers["last"][:, 1].tolist() == [c for c in range(6) for _ in range(5)]


def test_channels_that_something_else_reads_have_no_gate():
    class Returned(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 2)

        def forward(self, x):
            x = self.first(x)
            return x, self.last(self.second(x))

    model, x = Returned(), torch.randn(2, 4)
    found = groups_of(model, x)
    assert [group.name for group in found.groups] == ["second"]
    assert found.left == {"second": "its inputs are kept: the model returns them"}
    assert found.weights == (6 * 5 + 5 * 2) / (4 * 6 + 6 * 5 + 5 * 2)
    assert groups_of(model, x, gated={"second"}).groups == []


def test_the_layer_that_reads_channels_without_gates_is_named():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.first, self.out = nn.Embedding(7, 6), nn.Linear(6, 6), nn.Linear(6, 7, bias=False)
            self.out.weight = self.words.weight

        def forward(self, x):
            x = self.words(x)
            return self.out(x + self.first(x))

    found = groups_of(Tied(), torch.randint(7, (2, 4)), gated={"first"})
    assert found.left == {"first": "its inputs are kept: out reads them and has no gates"}


@pytest.mark.parametrize(("options", "gated"), [({}, True), ({"value": 1.0}, False), ({"mode": "replicate"}, False)])
def test_a_layer_reads_zeros_of_a_norm_with_gates_through_padding_with_zeros(options, gated):
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.inner, self.last = (
                *(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 2)),
            )

        def forward(self, x):
            x = self.first(x)
            padded = F.pad(self.norm(x), (0, 0, 1, 2), **options)
            return self.last(x + F.linear(padded, self.inner.weight)[:, 1:-2])

    found = groups_of(Padded(), torch.randn(2, 5, 4), gated={"first", "last"}, norms={"norm"})
    assert [group.units for group in found.groups] == ([6] if gated else [])
