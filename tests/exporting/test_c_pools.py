import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vbdrop.exporting.errors import ExportError

POOLS = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max, padded and overlapping": lambda x: F.max_pool2d(x, (3, 2), stride=(2, 1), padding=1),
    "max, dilated": lambda x: F.max_pool2d(x, 3, stride=2, padding=1, dilation=2),
    "max, ceil": lambda x: F.max_pool2d(x, 3, stride=2, ceil_mode=True),
    "mean": lambda x: F.avg_pool2d(x, (2, 3)),
    "mean, padded": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1),
    "mean, padded, ceil": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
    "mean of what is there": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
    "mean with a divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "adaptive mean": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (2, 1)),
    "along one axis, max": lambda x: F.max_pool1d(x.flatten(2), 3, stride=2, padding=1),
    "along one axis, mean": lambda x: F.avg_pool1d(x.flatten(2), 4),
    "along one axis, adaptive": lambda x: F.adaptive_avg_pool1d(x.flatten(2), 4),
    "mean over space": lambda x: x.mean((2, 3)),
    "mean over channels": lambda x: x.mean(1, keepdim=True),
    "sum over rows": lambda x: x.sum(-2),
    "largest of a row": lambda x: x.amax(-1),
}


class Pools(nn.Module):
    def forward(self, x):
        return torch.cat([pool(x).flatten(1) for pool in POOLS.values()], 1)


def test_every_pool_gives_what_torch_gives(as_c):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 8) - 1.0  # mostly negative: zeros of a padding would win a maximum
    parts = [pool(x).flatten(1) for pool in POOLS.values()]
    actual = as_c(Pools(), x).split([part.shape[1] for part in parts], 1)
    for name, part, expected in zip(POOLS, actual, parts, strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("pixel", [0, 9, 27, 55])
def test_what_is_not_finite_goes_through_every_pool_as_in_torch(as_c, value, pixel):
    x = torch.randn(1, 3, 7, 8)
    x[0, 1].view(-1)[pixel] = value
    torch.testing.assert_close(as_c(Pools(), x), Pools()(x), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("forward", "axes"),
    [(lambda x: x.mean((1, 3)), r"\[1, 3\]"), (lambda x: x.sum(0), r"\[0\]"), (torch.sum, r"\[0, ")],
)
def test_axes_that_cannot_be_reduced_are_named(as_c, forward, axes):
    class Model(nn.Module):
        def forward(self, x):
            return forward(x)

    with pytest.raises(ExportError, match=f"over the axes {axes}"):
        as_c(Model(), torch.ones(1, 2, 3, 4))
