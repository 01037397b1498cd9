import pytest
import torch
from torch import nn

from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.planning.replaced_modules import (
    NUMBERS,
    counted_as,
    made_by_replacing,
    note_replaced,
    replace_modules_,
)
from vbdrop.layers import CountedNorm
from vbdrop.layers.counted_norm import count_


def test_a_plan_makes_of_a_fresh_norm_what_the_first_one_was():
    norm = count_(nn.LayerNorm(3, elementwise_affine=False), "layer", 5)
    norm.scale, norm.weight = nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(3))
    plan, fresh = Plan(), nn.Sequential(nn.LayerNorm(3, elementwise_affine=False))
    note_replaced(plan, nn.Sequential(norm))
    assert tuple(plan.attributes["0"]) == NUMBERS
    replace_modules_(plan, fresh)
    fresh[0].load_state_dict(norm.state_dict())
    x = torch.randn(4, 3)
    assert torch.equal(fresh(x), norm(x))
    replace_modules_(plan, fresh)
    assert len(fresh[0].scale) == 3


def test_a_norm_that_counts_another_number_is_refused():
    plan = Plan(attributes={"0": counted_as("rms", 5, 1) | {"formula": 9}})
    with pytest.raises(ValueError, match="must have one of 3 formulas; got 9"):
        replace_modules_(plan, nn.Sequential(nn.RMSNorm(3)))
    plan = Plan(attributes={"0": counted_as("rms", 5, 1)})
    with pytest.raises(ValueError, match="must count 5 channels; got 6"):
        replace_modules_(plan, nn.Sequential(count_(nn.RMSNorm(3), "rms", 6)))


def test_the_scale_is_not_missing_in_a_fresh_model():
    plan = Plan(shapes={"a.scale": [3], "a.weight": [3]}, attributes={"a": counted_as("layer", 3, 1, scaled=3)})
    assert made_by_replacing(plan, {"a.weight": torch.ones(3)}) == {"a.scale"}
    assert not isinstance(nn.LayerNorm(3), CountedNorm)


def test_a_scale_is_like_the_rest_of_the_model_where_the_norm_has_no_parameter():
    plan = Plan(attributes={"1": counted_as("layer", 5, 1, scaled=3)})
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3, elementwise_affine=False)).double()
    replace_modules_(plan, model)
    for tensor in (model[1].scale, model[1].weight):
        assert (tensor.dtype, tensor.requires_grad) == (torch.float64, True)
