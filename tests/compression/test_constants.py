import torch
from tests.compression.nets import conv_norm, randomise_
from torch import nn

from vbdrop.compression.channels import Channels
from vbdrop.compression.constants import propagate
from vbdrop.compression.graph import trace


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
    flow = propagate(traced, model)
    known = []
    for node, value in zip(traced.results, values, strict=True):
        channels = flow.facts[node]
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
    flow = propagate(trace(model, (torch.zeros(2, 3),)), model)
    first, last = flow.products
    for channels in (first.outputs, last.outputs):
        assert any(torch.equal(units, channels.units) for units in flow.pinned)
    assert flow.left == {"sort": "the operation aten.sort.default is not known"}


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
    flow = propagate(trace(model, (torch.zeros(2, 3),)), model)
    assert flow.left == {}
    assert not any(torch.equal(units, flow.products[0].outputs.units) for units in flow.pinned)
