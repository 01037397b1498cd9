import pytest
import torch
from tests.compression.nets import conv_norm, randomise_
from torch import nn

from vbdrop.analysis.channels import Channels
from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import trace


class Tapped(nn.Module):
    """Returns what it computes on the way, too."""

    def __init__(self):
        super().__init__()
        self.block, self.pool, self.head = conv_norm(3, 6), nn.AvgPool2d(2), nn.Linear(54, 4)

    def forward(self, x):
        block = torch.nn.functional.gelu(self.block(x))
        pooled = self.pool(block)
        flat = pooled.flatten(1)
        return block, pooled, flat, self.head(flat)


def test_what_is_known_is_what_the_model_computes():
    model = randomise_(Tapped()).double()
    with torch.no_grad():
        model.block[0].weight[[0, 2, 5]] = 0
        model.head.weight.view(4, 6, 9)[3, [1, 3, 4]] = 0  # reads constants only
        x = torch.randn(2, 3, 6, 6).double()
        values = model(x)
    traced = trace(model, (x,))
    facts = propagate(traced, model)
    known = []
    for node, value in zip(traced.results, values, strict=True):
        channels = facts.by_node[node]
        assert isinstance(channels, Channels)
        by_channel = value.transpose(0, channels.axis).flatten(1)
        expected = channels.value[:, None].expand_as(by_channel)
        torch.testing.assert_close(by_channel[channels.known], expected[channels.known])
        known.append(int(channels.known.sum()))
        spread = by_channel.amax(1) - by_channel.amin(1)
        assert torch.equal(channels.known, spread < 1e-9)
    assert known == [3, 3, 27, 1]


def test_what_is_returned_is_kept_and_an_unknown_operation_is_named():
    class Sorted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.first(x).sort(1).values)

    model = Sorted().eval()
    facts = propagate(trace(model, (torch.zeros(2, 3),)), model)
    first, last = facts.products
    for channels in (first.outputs, last.outputs):
        assert any(torch.equal(units, channels.units) for units in facts.pinned)
    assert facts.left == {"sort": "the operation aten.sort.default is not known"}


def test_asserts_and_sizes_need_no_channels():
    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            hidden = self.first(x)
            torch._check(hidden.shape[0] > 0)
            return self.last(hidden / hidden.shape[0])

    model = Sized().eval()
    facts = propagate(trace(model, (torch.zeros(2, 3),)), model)
    assert facts.left == {}
    assert not any(torch.equal(units, facts.products[0].outputs.units) for units in facts.pinned)


class Tied(nn.Module):
    """A weight in two orientations."""

    def __init__(self, inputs: int):
        super().__init__()
        self.conv = nn.Conv2d(inputs, 6, 3, bias=False)

    def forward(self, x):
        return nn.functional.conv_transpose2d(torch.relu(self.conv(x)), self.conv.weight)


class Grouped(nn.Module):
    """A weight with and without groups."""

    def __init__(self, inputs: int):
        super().__init__()
        self.conv = nn.Conv2d(inputs, 6, 1, groups=inputs // 3)

    def forward(self, x):
        return self.conv(x) + nn.functional.conv2d(x[:, :3], self.conv.weight, self.conv.bias)


class Borrowed(nn.Module):
    """A weight in another orientation than that of its own module."""

    def __init__(self, inputs: int):
        super().__init__()
        self.up, self.last = nn.ConvTranspose2d(6, inputs, 1), nn.Conv2d(6, 2, 1)

    def forward(self, x):
        return self.last(nn.functional.conv2d(x, self.up.weight))


@pytest.mark.parametrize("kind", [Tied, Grouped, Borrowed])
def test_a_weight_that_is_used_in_two_ways_keeps_all_of_its_channels(kind):
    model = kind(6).eval()
    facts = propagate(trace(model, (torch.zeros(2, 6, 5, 5),)), model)
    (name,) = (name for name, weight in model.named_parameters() if name in facts.frozen and weight.dim() > 1)
    assert name not in [product.weight for product in facts.products]
    pinned = {int(unit) for units in facts.pinned for unit in units}
    convolutions = [
        node for node in facts.traced.graph.nodes if "conv" in str(node.target) and name in map(facts.name, node.args)
    ]
    assert all(set(facts.channels(node).units.tolist()) <= pinned for node in convolutions)
    reasons = [facts.left[facts.place(node)] for node in convolutions]
    assert all("its weight is also used in another way" in reason for reason in reasons)
