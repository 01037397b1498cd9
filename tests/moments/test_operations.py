import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vbdrop.moments import Moments, NoRuleError
from vbdrop.moments.operations import SMOOTH


@pytest.mark.parametrize(
    "operation",
    [
        lambda t: t.flatten(-2),
        lambda t: torch.flatten(t, -2, -1),
        lambda t: torch.flatten(input=t, start_dim=-2),
        lambda t: torch.sigmoid(input=t),
        lambda t: F.linear(input=t, weight=torch.ones(2, 6, dtype=torch.float64)),
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
        nn.Hardtanh(-0.5, 0.3),
        nn.ReLU6(),
        F.relu6,
        nn.Dropout().eval(),
        nn.Identity(),
        nn.Linear(6, 2).double(),
    ],
)
def test_operations_have_the_moments_of_draws(operation, normal, agree):
    x, draws = normal(4, 6)
    found = operation(x)
    agree(found, operation(draws).detach().expand(len(draws), *found.shape))


def through_a_view(t):
    t.view(-1).relu_()
    return t


def after_a_view(t):
    view = t.view(-1)
    t.relu_()
    return view.view(-1, 6)


def of_a_part(t):
    t[..., :3] += 2.0
    return t


def by_another_value(t):
    t[..., :3] = 2 * t[..., 3:]
    t[..., 5] = 7.0
    return t


def of_a_result(t):
    for result in (t + 0.0, t * 1.0, -t, F.relu(t), F.max_pool1d(t, 1), t.clone()):
        result *= 10.0
    return t


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.relu_(),
        lambda t: F.relu(t, inplace=True),
        lambda t: torch.relu_(t),
        lambda t: F.leaky_relu_(t, 0.3),
        nn.LeakyReLU(0.3, inplace=True),
        nn.ELU(inplace=True),
        nn.ReLU6(inplace=True),
        lambda t: torch.sigmoid_(t),
        lambda t: t.add_(2.0, alpha=3),
        lambda t: t.sub_(2.0),
        lambda t: t.mul_(2.0),
        lambda t: t.__iadd__(torch.ones(6, dtype=torch.float64)),
        lambda t: t.__isub__(100.0),
        lambda t: t.__imul__(3.0),
        lambda t: t.__itruediv__(4.0),
        through_a_view,
        of_a_part,
        by_another_value,
        of_a_result,
    ],
)
def test_what_is_changed_in_place_is_changed_under_its_old_name(change, normal, agree):
    x, draws = normal(4, 6)
    assert (change(x).mean_ == x.mean_).all()
    change(draws)
    agree(x, draws, bias=0.01, share=0.02)


def test_a_view_sees_what_is_changed_later(normal, agree):
    x, draws = normal(4, 6)
    agree(after_a_view(x), after_a_view(draws).view(-1, 4, 6))


def test_a_plain_tensor_cannot_become_noisy_in_place(normal):
    x, _ = normal(4, 6, draws=1)
    plain = torch.zeros(4, 6, dtype=torch.float64)
    with pytest.raises(NoRuleError, match="add_ into a plain tensor"):
        plain.add_(x)


@pytest.mark.parametrize(("module", "mean"), [(nn.Hardtanh(), 0.0261), (nn.ReLU6(), 1.2197)], ids=["hardtanh", "relu6"])
def test_bounded_activations_are_exact_for_large_deviations(module, mean):
    """A mean of 0.1 and a deviation of 3."""
    found = module(Moments(torch.tensor([0.1]), torch.tensor([9.0])))
    assert found.mean_.item() == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize("dim", [None, (), [], (0, 1), [0, -1]], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_an_average_of_everything(dim, keepdim, normal):
    """However it is said; 24 numbers."""
    x, _ = normal(4, 6, draws=1)
    found = torch.mean(x, dim, keepdim=keepdim)
    torch.testing.assert_close(found.mean_, x.mean_.mean(dim, keepdim=keepdim))
    torch.testing.assert_close(found.variance, x.variance.mean(dim, keepdim=keepdim) / 24)


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
