import pytest
import torch
from torch import nn

from vbdrop.exporting.errors import ExportError


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_softmax_over_any_axis(difference, axis):
    class Softmax(nn.Module):
        def forward(self, x):
            return torch.cat([x.softmax(axis), x.log_softmax(axis)], 3)

    assert difference(Softmax(), torch.randn(2, 3, 4, 5)) < 1e-6


def test_softmax_of_large_values_does_not_overflow(as_c):
    x = torch.tensor([[1000.0, 999.0, -1000.0]])
    torch.testing.assert_close(as_c(nn.LogSoftmax(1), x), x.log_softmax(1))
    torch.testing.assert_close(as_c(nn.Softmax(1), x), x.softmax(1))


def test_parts_are_joined_along_any_axis(difference):
    class Joined(nn.Module):
        def forward(self, x):
            y = torch.cat([x, torch.relu(x)[:, :, :2]], 2)
            y = torch.cat([y, torch.full((1, 1, 5, 4), 0.5).expand(x.shape[0], 1, 5, 4), -y], 1)
            return torch.cat([y, y], -1)

    assert difference(Joined(), torch.randn(1, 2, 3, 4)) < 1e-6


def test_an_empty_list_among_the_parts_counts_for_nothing(difference):
    class Joined(nn.Module):
        def forward(self, x):
            return torch.cat([torch.empty(0), x, torch.empty(0), -x], 1)

    assert difference(Joined(), torch.randn(2, 3)) < 1e-6


@pytest.mark.parametrize(
    ("forward", "operation"),
    [
        (lambda x: x.softmax(0), r"aten\.softmax.*over the batch"),
        (lambda x: torch.cat([x, x], 0), r"aten\.cat.*along the batch"),
        (lambda x: x.cumsum(1), r"aten\.cumsum"),
        (lambda x: torch.nn.functional.layer_norm(x, (4,)), r"aten\.layer_norm|aten\.native_layer_norm"),
        (lambda x: nn.functional.conv_transpose2d(x, torch.ones(2, 1, 2, 2)), r"aten\.conv_transpose2d"),
    ],
)
def test_an_operation_that_cannot_be_written_is_named(as_c, forward, operation):
    class Model(nn.Module):
        def forward(self, x):
            return forward(x)

    with pytest.raises(ExportError, match=operation):
        as_c(Model(), torch.ones(2, 2, 3, 4))
