import pytest
import torch

from vbdrop.moments import Moments, NoRuleError


def test_sums_and_known_factors(normal, agree):
    x, draws = normal(3, 4)
    known = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    for found, expected in (
        (2 - x * known / 4, 2 - draws * known / 4),
        (known + x - 1, known + draws - 1),
        (-x + x[:, :1], -draws + draws[..., :1].flip(0)),  # other draws of the same numbers: independent
    ):
        agree(found, expected)


def test_a_forward_may_ask_for_the_shape_of_a_value():
    x = Moments(torch.zeros(2, 3), torch.ones(2, 3))
    assert (x.shape, x.size(0), x.dim(), x.ndim, x.dtype) == ((2, 3), 2, 2, 2, torch.float32)


def test_what_has_no_rule_is_named():
    x = Moments(torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(NoRuleError, match="cumsum"):
        torch.cumsum(x, 0)
    with pytest.raises(NoRuleError, match="cumsum"):
        x.cumsum(0)
    with pytest.raises(NoRuleError, match="product of two"):
        x * x
    with pytest.raises(NoRuleError, match="quotient of two"):
        x / x
    with pytest.raises(AttributeError, match="'magic'"):
        _ = x.magic
    with pytest.raises(ValueError, match=r"`variance` must have the shape of `mean`, \[2, 3\]; got \[3\]"):
        Moments(torch.zeros(2, 3), torch.ones(3))


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (lambda x: x**2, "pow"),
        (lambda x: 2**x, "rpow"),
        (lambda x: 1 / x, "rtruediv"),
        (lambda x: torch.ones(3) / x, "truediv"),
        (lambda x: x // 2, "floordiv"),
        (lambda x: x % 2, "mod"),
        (lambda x: x @ torch.ones(3, 3), "matmul"),
        (lambda x: torch.ones(2, 2) @ x, "matmul"),
        (lambda x: x > 0, "gt"),
        (lambda x: torch.zeros(3) > x, "lt"),
        (lambda x: x <= 0, "le"),
        (lambda x: x == 0, "eq"),
        (lambda x: x != x, "ne"),
        (lambda x: torch.zeros(3) == x, "eq"),
        (abs, "abs"),
        (float, "float"),
        (lambda x: not x, "bool"),
        (lambda x: torch.cat([x, x], axis=1), "cat with these arguments"),
        (lambda x: x.mean(1, dtype=torch.float64), "mean with these arguments"),
        (lambda x: torch.mean(x, 1, dtype=torch.float64), "mean with these arguments"),
    ],
)
def test_operators_and_arguments_without_a_rule_are_named(operation, name):
    with pytest.raises(NoRuleError, match=name):
        operation(Moments(torch.zeros(2, 3), torch.ones(2, 3)))


def test_moments_are_sequences_and_keys():
    x = Moments(torch.zeros(2, 3), torch.ones(2, 3))
    assert len(x) == 2
    first, second = x
    assert first.shape == second.shape == (3,)
    assert len({x, first, second}) == 3
