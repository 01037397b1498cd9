import pytest
import torch
from torch import nn

from vbdrop.exporting.errors import ExportError


class WithConstants(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("channel", torch.tensor([0.5, 2.0, -1.0]).reshape(3, 1, 1))
        self.register_buffer("column", torch.linspace(-1, 1, 4))
        self.register_buffer("ends", torch.randn(3, 1, 4))

    def forward(self, x):
        y = 2 * x - 0.5
        y = (y - self.channel) / self.channel + self.column
        y = y * self.ends
        return self.channel - y + (1 - x)


class OfVariables(nn.Module):
    def forward(self, x):
        row = x.mean((1, 2), keepdim=True)
        channel = x.mean((2, 3), keepdim=True)
        ends = x[:, :, :1]
        y = x + x
        y = y * channel
        y = channel * y
        y = row - y
        y = y + ends * (row + channel)
        return y / (1 + x * x)


@pytest.mark.parametrize("model", [WithConstants(), OfVariables()], ids=["constants", "variables"])
def test_values_are_broadcast_as_torch_does(difference, model):
    torch.manual_seed(0)
    assert difference(model, torch.randn(2, 3, 5, 4)) < 1e-5


def test_an_input_smaller_than_a_constant_is_expanded(difference):
    class Outer(nn.Module):
        def forward(self, x):
            return x[:, :, None] * torch.tensor([1.0, 2.0, 3.0])

    assert difference(Outer(), torch.randn(2, 4)) < 1e-6


def test_a_part_is_added_where_it_belongs(difference):
    class Partial(nn.Module):
        def forward(self, x):
            y = x.index_add(1, torch.tensor([2, 0, 2]), torch.tanh(x))
            y = y + x.new_zeros(x.shape).index_add(1, torch.tensor([1]), x[:, 2:])
            return y + x.index_add(-1, torch.tensor([1]), x[..., :1])

    assert difference(Partial(), torch.randn(2, 3, 5, 4)) < 1e-6


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda x: 1 / x, "reciprocal"),
        (lambda x: torch.full((1, 2), 3.0) / x, "a constant divided by"),
        (lambda x: torch.add(x, x, alpha=2), "with alpha"),
        (lambda x: torch.div(x, 2.0, rounding_mode="floor"), "rounding mode"),
        (lambda x: x + float("inf"), "not finite"),
        (lambda x: x.index_add(1, torch.tensor([1]), x[:, :1], alpha=2), "with alpha"),
        (lambda x: (x + torch.tensor([[0.0, 0.0], [5.0, 5.0]]))[:1], "along the batch"),
        (lambda x: torch.ones(3, 1, 2) - x, "along the batch"),
        (lambda x: x * torch.ones(1, 3, 2), "along the batch"),
        (lambda x: x + x[:, None], "along the batch"),
    ],
)
def test_what_cannot_be_written_is_named(as_c, forward, reason):
    class Model(nn.Module):
        def forward(self, x):
            return forward(x)

    if reason == "reciprocal":  # torch traces it as an operation of its own, which can be written
        assert torch.allclose(as_c(Model(), torch.full((1, 2), 4.0)), torch.tensor(0.25))
        return
    with pytest.raises(ExportError, match=reason):
        as_c(Model(), torch.ones(1, 2))
