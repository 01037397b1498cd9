import pytest
import torch
from torch.nn import functional as F

from vbdrop.moments import Moments, NoRuleError
from vbdrop.moments.pointwise import clipped, leaky, quadrature, rectified


def integrated(function, x):
    """The moments of a function of a normal number, on a fine grid in float64."""
    grid = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    density = torch.exp(-0.5 * grid.square())
    density = density / density.sum()
    values = function(x.mean_.double()[:, None] + x.variance.double().sqrt()[:, None] * grid)
    mean = (values * density).sum(1)
    return mean, ((values - mean[:, None]).square() * density).sum(1)


MEANS = torch.tensor([-6.0, -2.0, -0.3, 0.0, 0.5, 3.0, 7.0])


@pytest.mark.parametrize("variance", [1e-4, 1.0, 9.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.float32, 1e-5)], ids=str)
@pytest.mark.parametrize("rule", [rectified, lambda x: leaky(x, 0.2)], ids=["relu", "leaky"])
def test_the_rectified_is_that_of_an_integral(rule, variance, dtype, tolerance):
    x = Moments(MEANS.to(dtype), torch.full_like(MEANS, variance, dtype=dtype))
    slope = 0.0 if rule is rectified else 0.2
    mean, expected = integrated(lambda t: torch.where(t > 0, t, slope * t), x)
    found = rule(x)
    scale = max(1.0, variance)
    torch.testing.assert_close(found.mean_.double(), mean, atol=tolerance * scale, rtol=1e-5)
    torch.testing.assert_close(found.variance.double(), expected, atol=10 * tolerance * scale, rtol=1e-4)


@pytest.mark.parametrize("variance", [1e-4, 1.0, 9.0, 100.0, 1e4, 1e6])
@pytest.mark.parametrize(("dtype", "share"), [(torch.float64, 1e-4), (torch.float32, 1e-2)], ids=str)
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 6.0), (2.0, 3.0)])
def test_the_clipped_is_that_of_an_integral(low, high, variance, dtype, share):
    """Variances within 1 % in float32, for deviations of up to 1000 times the range; the grid is off by up to 1e-4."""
    x = Moments(MEANS.to(dtype), torch.full_like(MEANS, variance, dtype=dtype))
    mean, expected = integrated(lambda t: t.clamp(low, high), x)
    found = clipped(x, low, high)
    torch.testing.assert_close(found.mean_.double(), mean, atol=2e-4, rtol=0)
    torch.testing.assert_close(found.variance.double(), expected, atol=min(1e-4, 1e-3 * variance), rtol=share)


def test_the_clipped_far_from_its_range_and_without_noise():
    x = Moments(torch.tensor([1e4, -1e4, 0.5, 3.0, 6.0]), torch.tensor([1e-4, 1e-4, 1e-4, 0.0, 0.0]))
    found = clipped(x, 0.0, 6.0)
    torch.testing.assert_close(found.mean_, torch.tensor([6.0, 0.0, 0.5, 3.0, 6.0]))
    torch.testing.assert_close(found.variance, torch.tensor([0.0, 0.0, 1e-4, 0.0, 0.0]))


def test_an_infinite_range_has_no_rule():
    with pytest.raises(NoRuleError, match="hardtanh with an infinite bound"):
        clipped(Moments(torch.zeros(1), torch.ones(1)), 0.0, float("inf"))


def test_what_is_known_stays_known():
    for mean in (-3.0, 0.0, 3.0):
        found = rectified(Moments(torch.tensor([mean]), torch.zeros(1)))
        assert found.mean_.item() == max(mean, 0.0)
        assert found.variance.item() == 0.0


def test_far_from_the_kink_nothing_is_lost_in_float32():
    found = rectified(Moments(torch.tensor([1e4, -1e4]), torch.tensor([1e-4, 1e-4])))
    torch.testing.assert_close(found.variance, torch.tensor([1e-4, 0.0]), rtol=1e-3, atol=1e-9)
    torch.testing.assert_close(found.mean_, torch.tensor([1e4, 0.0]))


@pytest.mark.parametrize("function", [torch.tanh, torch.sigmoid, F.softplus, F.gelu], ids=lambda f: f.__name__)
def test_smooth_functions_are_integrated(function):
    x = Moments(MEANS.double(), torch.ones_like(MEANS).double())
    mean, variance = integrated(function, x)
    found = quadrature(function)(x)
    torch.testing.assert_close(found.mean_, mean, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.variance, variance, atol=1e-5, rtol=1e-3)
