import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vbdrop.moments import Moments, NoRuleError
from vbdrop.moments.pooling import adaptive_average_pool, average_pool, larger, max_pool


def test_the_larger_of_two_is_exact(normal, agree):
    (x, first), (y, second) = normal(50, seed=1), normal(50, seed=2)
    agree(larger(x, y), torch.maximum(first, second))
    agree(larger(y, x), torch.maximum(first, second))


def test_the_larger_of_known_numbers():
    found = larger(
        Moments(torch.tensor([1.0, 1e4]), torch.zeros(2)), Moments(torch.tensor([2.0, -1e4]), torch.zeros(2))
    )
    assert found.mean_.tolist() == [2.0, 1e4]
    assert found.variance.tolist() == [0.0, 0.0]


def test_the_variance_of_the_larger_keeps_its_digits_in_float32():
    """Against float64, for gaps of up to 1000 deviations; the order does not matter."""
    torch.manual_seed(0)
    gap = 50 * torch.randn(1000)
    x, y = (Moments(mean, 0.1 * torch.rand(1000)) for mean in (gap, torch.zeros(1000)))
    expected = larger(*(each.each(Tensor.double) for each in (x, y))).variance
    torch.testing.assert_close(larger(x, y).variance.double(), expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(larger(y, x).variance.double(), expected, rtol=1e-4, atol=0)
    far, near = Moments(torch.tensor([1e4]), torch.tensor([1e-4])), Moments(torch.zeros(1), torch.tensor([1e-4]))
    assert larger(far, near).variance.item() == larger(near, far).variance.item() == pytest.approx(1e-4)


@pytest.mark.parametrize("settings", [(2,), (3, 2), (3, 2, 1), ((2, 3), 1, (0, 1))], ids=str)
def test_maxima_are_near_those_of_draws(settings, normal):
    """5,000 draws. Means are off by at most 0.06, where deviations are 0.2 to 1.2; deviations by 8 % on average."""
    x, draws = normal(2, 3, 7, 6, draws=5000)
    expected = F.max_pool2d(draws.flatten(0, 1), *settings).unflatten(0, draws.shape[:2])
    found = max_pool(2)(x, *settings)
    assert (found.mean_ - expected.mean(0)).abs().max() < 0.06
    off = (found.variance.sqrt() / expected.std(0) - 1).abs()
    assert off.mean() < 0.08
    assert off.max() < 0.3


@pytest.mark.parametrize("settings", [(2,), (3, 2), (3, 2, 1), ((2, 3), 1, (0, 1))], ids=str)
def test_averages_are_exact(settings, normal, agree):
    x, draws = normal(2, 3, 7, 6, draws=5000)
    expected = F.avg_pool2d(draws.flatten(0, 1), *settings).unflatten(0, draws.shape[:2])
    agree(average_pool(2)(x, *settings), expected)


def test_adaptive_averages_and_other_dimensions(normal, agree):
    x, draws = normal(2, 3, 4, 6, draws=5000)
    expected = F.adaptive_avg_pool2d(draws.flatten(0, 1), (2, 3)).unflatten(0, draws.shape[:2])
    agree(adaptive_average_pool(2)(x, (2, 3)), expected)
    agree(adaptive_average_pool(2)(x, (None, 1)), draws.mean(-1, keepdim=True))
    one = x.each(lambda t: t[..., 0, :])
    agree(max_pool(1)(one, 2), F.max_pool1d(draws[..., 0, :].flatten(0, 1), 2).unflatten(0, draws.shape[:2]))


def test_settings_without_a_rule_are_named(normal):
    x, _ = normal(1, 1, 5, 5, draws=1)
    with pytest.raises(NoRuleError, match="max_pool2d with ceil_mode"):
        max_pool(2)(x, 2, ceil_mode=True)
    with pytest.raises(NoRuleError, match="avg_pool2d with"):
        average_pool(2)(x, 2, padding=1, count_include_pad=False)
    with pytest.raises(NoRuleError, match="does not divide"):
        adaptive_average_pool(2)(x, 2)
