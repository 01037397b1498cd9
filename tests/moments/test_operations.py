import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vbdrop.moments import NoRuleError
from vbdrop.moments.operations import SMOOTH


@pytest.mark.parametrize(
    "operation",
    [
        lambda t: t.flatten(-2),
        lambda t: torch.flatten(t, -2, -1),
        lambda t: t.unflatten(-1, (2, 3)),
        lambda t: t.transpose(-1, -2).contiguous(),
        lambda t: t[..., None].squeeze(-1),
        lambda t: t.mean(-1),
        lambda t: torch.mean(t, (-2, -1), keepdim=True),
        lambda t: torch.cat([t, torch.ones_like(getattr(t, "mean_", t))], -1),
        lambda t: torch.add(t, 2.0, alpha=3),
        lambda t: 1.0 + t * 2.0,
        lambda t: torch.ones(6, dtype=torch.float64) + t,
        lambda t: 3 * torch.ones(6, dtype=torch.float64) * t,
        lambda t: torch.ones(6, dtype=torch.float64) - t,
        lambda t: torch.sub(t, 1.0),
        F.relu,
        torch.relu,
        nn.LeakyReLU(0.3),
        nn.Dropout().eval(),
        nn.Identity(),
        nn.Linear(6, 2).double(),
    ],
)
def test_operations_have_the_moments_of_draws(operation, normal, agree):
    x, draws = normal(4, 6)
    found = operation(x)
    agree(found, operation(draws).detach().expand(len(draws), *found.shape))


@pytest.mark.parametrize("name", SMOOTH)
def test_pointwise_functions_have_the_moments_of_draws(name, normal, agree):
    """Functions with a kink are integrated less well: means within 0.01, variances within 2 %."""
    x, draws = normal(4, 6)
    agree(SMOOTH[name](x), SMOOTH[name](draws), bias=0.01, share=0.02)


def test_modules_with_images(normal, agree):
    x, draws = normal(2, 3, 6, 6, draws=3000)
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.AvgPool2d(2), nn.Flatten()).double().eval()
    expected = model(draws.flatten(0, 1)).detach().unflatten(0, draws.shape[:2])
    agree(model(x), expected, share=0.6)  # neighbours share inputs: their covariance is left out
    expected = F.max_pool2d(draws.flatten(0, 1), 2).unflatten(0, draws.shape[:2])
    agree(nn.MaxPool2d(2)(x), expected, bias=0.03, share=0.4)
    agree(nn.AdaptiveAvgPool2d(1)(x), draws.mean((-2, -1), keepdim=True))


@pytest.mark.parametrize("name", ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"])
def test_dropout_that_is_on_has_no_rule(name, normal):
    """All but the last are on by default."""
    x, _ = normal(2, 3, 4, 5, 6, draws=1)
    function = getattr(F, name)
    assert torch.equal(function(x, training=False).mean_, x.mean_)
    assert torch.equal(function(x, 0.0, training=True).mean_, x.mean_)
    with pytest.raises(NoRuleError, match="dropout that is on"):
        function(x, 0.5, training=True)
    if name != "alpha_dropout":
        with pytest.raises(NoRuleError, match="dropout that is on"):
            function(x)
