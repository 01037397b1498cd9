"""Moments against draws."""

import pytest
import torch

from vbdrop.moments import Moments


@pytest.fixture
def normal():
    """Makes moments of a shape, with deviations between 0.2 and 1.2, and draws from them."""

    def make(*shape, draws=20_000, seed=0):
        generator = torch.Generator().manual_seed(seed)
        mean = torch.randn(shape, generator=generator, dtype=torch.float64)
        deviation = 0.2 + torch.rand(shape, generator=generator, dtype=torch.float64)
        noise = torch.randn(draws, *shape, generator=generator, dtype=torch.float64)
        return Moments(mean, deviation.square()), mean + deviation * noise

    return make


@pytest.fixture
def agree():
    """Means within 6 standard errors of draws and a bias, variances likewise and within a share of them.

    What happens to few draws only has no standard error that could be estimated: 0.001 is always allowed.
    """

    def check(found, draws, *, bias=0.001, share=0.0):
        n, deviation = len(draws), draws.std(0)
        centred = draws - draws.mean(0)
        error_of_variance = (centred.square().var(0) / n).sqrt()
        assert found.mean_.shape == draws.shape[1:]
        assert ((found.mean_ - draws.mean(0)).abs() <= 6 * deviation / n**0.5 + bias).all()
        gap = (found.variance - deviation.square()).abs()
        assert (gap <= 6 * error_of_variance + share * deviation.square() + 0.001).all()

    return check
