import copy
from dataclasses import replace

import pytest
import torch
from tests.compression.nets import difference
from tests.compression.rewriting.test_converted_layers import MODES, X, trained

import vbdrop
from vbdrop.analysis.graph import trace
from vbdrop.compression import Plan, apply_plan_
from vbdrop.compression.make_plan import make_plan
from vbdrop.compression.planning.plan import WeightLayout
from vbdrop.compression.planning.remaining_plan import relative
from vbdrop.compression.rewriting.restore import restore_


@torch.no_grad()
def kill_more_(model):
    """Let further units die, wherever they are now."""
    for layer in (model.conv2[0], model.fc2, model.up):
        if hasattr(layer, "gate"):
            layer.gate.log_sigma2[0] = 20
    for layer in (model.conv1, model.conv2[0], model.grouped):
        if "log_sigma2" in layer._parameters:
            layer.log_sigma2[-2:] = 20


@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
def test_two_plans_of_the_original_model_are_applied_one_after_the_other(modes):
    model = trained(*modes)
    with torch.no_grad():
        model.fc1.weight[:] = model.fc1.weight[3]  # no constant behind a layer without a bias
        for entry in model.fc1.variational():
            entry.log_sigma2[:] = -10
    original = copy.deepcopy(model)
    network = vbdrop.deterministic_(copy.deepcopy(model)).eval()
    traced = trace(network, (X,))
    first = make_plan(traced, network, rewritten=False).plan
    apply_plan_(first, model)
    kill_more_(model)
    masked = copy.deepcopy(model)
    network = vbdrop.deterministic_(restore_(copy.deepcopy(original), first, model.state_dict())).eval()
    second = make_plan(traced, network, rewritten=False).plan
    step = relative(second, first)
    assert step is not None
    assert step.keep
    apply_plan_(step, model)
    assert difference(masked, model, X) < 1e-10
    assert sum(p.numel() for p in model.parameters()) < sum(p.numel() for p in masked.parameters())
    shapes = {name: list(tensor.shape) for name, tensor in apply_plan_(second, network).state_dict().items()}
    assert {name: list(model.state_dict()[name].shape) for name in shapes} == shapes


def test_the_same_plan_again_has_nothing_to_do():
    plan = Plan(keep={"weight": {1: [0, 2]}}, shapes={"weight": [2, 3]}, attributes={"": {"in_features": 2}})
    step = relative(plan, plan)
    assert step == Plan(shapes={"weight": [2, 2]}, attributes={"": {"in_features": 2}})


def test_the_groups_are_those_that_are_left():
    done = Plan(
        keep={"weight": {0: [0, 1, 2, 3]}}, attributes={"": {"groups": 2}}, shapes={"weight": [8, 3]},
        layouts={"weight": WeightLayout(groups=4)},
    )  # fmt: skip
    plan = replace(done, keep={"weight": {0: [2, 3]}}, attributes={"": {"groups": 1}})
    step = relative(plan, done)
    assert step.layouts == {"weight": WeightLayout(groups=2)}
    assert step.kept_inputs("weight") == [3, 4, 5]


@pytest.mark.parametrize("keep", [{}, {"weight": {0: [0]}}, {"weight": {1: [0, 1]}}])
def test_what_went_cannot_be_needed_again(keep):
    done = Plan(keep={"weight": {1: [0, 2]}}, shapes={"weight": [2, 3]})
    assert relative(Plan(keep=keep, shapes={"weight": [2, 3]}), done) is None
