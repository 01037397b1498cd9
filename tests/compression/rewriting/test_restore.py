import copy

import pytest
import torch
from tests.compression.nets import difference
from tests.compression.rewriting.test_converted_layers import MODES, X, trained
from torch import nn

import vbdrop
from vbdrop.compression import Plan, apply_plan_, compress
from vbdrop.compression.planning.plan import ForwardProgram
from vbdrop.compression.rewriting.restore import restore_


@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
def test_a_small_bayesian_model_comes_back_to_its_shape_with_what_went_dead(modes):
    model = trained(*modes)
    with torch.no_grad():
        model.fc1.weight[:3] = model.fc1.weight[3:6]  # no constant behind a layer without a bias
        for entry in model.fc1.variational():
            entry.log_sigma2[:3] = -10
    original = copy.deepcopy(model)
    plan = compress(model, X, rewrite=False).plan
    assert all(name in plan.shapes for name in plan.add)
    small = apply_plan_(plan, model)
    whole = restore_(original, plan, small.state_dict())
    assert difference(small, whole, X) < 1e-10
    assert whole.fc2.weight.shape == (3, 16)
    assert small.grouped.weight.numel() < whole.grouped.weight.numel()
    with vbdrop.sampling(small), vbdrop.sampling(whole):
        draws = [torch.stack([m(X) for _ in range(400)]) for m in (small, whole)]
    deviation = draws[0].std(0)
    assert ((draws[0].mean(0) - draws[1].mean(0)).abs() <= 6 * deviation / 400**0.5 + 1e-6).all()
    for name in vbdrop.rates(small):
        assert vbdrop.rates(whole)[name].dead >= vbdrop.rates(small)[name].dead


def test_a_plan_after_which_the_model_is_of_another_structure_is_refused():
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="must not have a program"):
        restore_(model, Plan(program=ForwardProgram([], {}, [])), model.state_dict())
    with pytest.raises(ValueError, match=r"must not create a bias.*'0\.bias'"):
        restore_(model, Plan(add={"0.bias": [1.0]}), model.state_dict())
