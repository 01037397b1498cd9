"""Gaussian dropout by local reparameterization: the outputs' moments, rates that stay, a short training."""

import pytest
import torch
from tests.trained import below
from torch import nn

import vbdrop
from vbdrop.methods import GaussianDropout


def test_the_outputs_have_the_moments_of_the_fixed_rate():
    layer = GaussianDropout(input_rate=0.2).build(nn.Linear(6, 3))
    x, n = torch.randn(6), 100_000
    out = layer(x.expand(n, 6)).detach()
    variance = 0.25 * (x.square() * layer.weight.detach().square()).sum(1)
    error = (variance.max().item() / n) ** 0.5
    torch.testing.assert_close(out.mean(0), layer.weight @ x + layer.bias, rtol=0, atol=5 * error)
    torch.testing.assert_close(out.var(0), variance, rtol=5 * (2 / n) ** 0.5, atol=0)


@pytest.mark.trained
def test_the_rates_do_not_move_and_it_learns(task):
    method = GaussianDropout(rate=0.3)
    model = task.fit(method, epochs=10)
    assert [round(row.p, 4) for row in vbdrop.rates(model).values()] == [0.2, 0.3, 0.3]
    below(20, task.error(method.finish(model)), mean=9.67, sd=1.2)
