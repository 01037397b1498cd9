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
