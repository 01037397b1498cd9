import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compression.nets import difference, mask_units_, mask_weights_, randomise_
from tests.compression.random_graphs import RandomNet
from tests.stress import count
from torch import nn

from vbdrop.analysis.graph import trace
from vbdrop.compression.make_plan import make_plan
from vbdrop.compression.rewriting.apply_plan import apply_plan_


@torch.no_grad()
def mask_(model: nn.Module, share: float, sides: str) -> None:
    """Zero weights, whole units, and some of the scales and shifts of every layer."""
    mask_weights_(model, 0.2)
    mask_units_(model, share, sides)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight[torch.rand(len(module.weight)) < share / 3] = 0
        for name, bias in module.named_parameters(recurse=False):
            if name.startswith("bias") and torch.rand(()) < 0.4:
                bias.zero_()


@pytest.mark.stress
@settings(max_examples=count(4, 400))
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(3, 10),
    share=st.sampled_from([0.3, 0.7, 0.9]),
    sides=st.sampled_from(["rows", "columns", "either"]),
)
def test_random_graphs_compute_the_same_with_what_is_dead_removed(seed, steps, share, sides):
    torch.manual_seed(seed)
    model = randomise_(RandomNet(seed, steps)).double().eval()
    mask_(model, share, sides)
    x = torch.randn(2, 3, 6, 6).double()
    traced = trace(model, (x,))
    draft = make_plan(traced, model)
    plans = [draft.program]
    for frozen_shapes in (False, True):
        kept = make_plan(traced, model, rewritten=False, frozen_shapes=frozen_shapes)
        plans += [kept.plan] if kept.keeps_forward else []
        assert kept.keeps_forward or not frozen_shapes
    for plan in plans:
        small = apply_plan_(plan, copy.deepcopy(model))
        assert difference(model, small, x) < 1e-10
        assert difference(model, small, torch.randn(5, 3, 6, 6).double()) < 1e-10


def test_a_forward_that_cannot_be_written_is_named_and_kept():
    class Structured(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 2)

        def forward(self, x):
            return torch.return_types.max((self.last(self.first(x)), x))

    model = randomise_(Structured())
    with torch.no_grad():
        model.first.weight[:, :3] = 0
    draft = make_plan(trace(model, (torch.randn(2, 6),)), model)
    assert draft.program is None
    assert "cannot be replaced" in draft.left["forward"]


def test_what_stays_is_not_removed_and_not_folded():
    model = randomise_(nn.Sequential(nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)))
    with torch.no_grad():
        model[0].weight[:3] = 0  # constants
        model[4].weight[:, 1:] = 0  # read by nobody
    x = torch.randn(3, 6)
    traced = trace(model, (x,))
    all_that_can = make_plan(traced, model, rewritten=False).plan
    assert [len(all_that_can.keep[name][1]) for name in ("2.weight", "4.weight")] == [2, 1]
    plan = make_plan(traced, model, rewritten=False, stays={"2.weight": [0], "4.weight": [3]}).plan
    assert plan.keep["2.weight"][1] == [0, 3, 4]
    assert plan.keep["4.weight"][1] == [0, 3]
    assert difference(model, apply_plan_(plan, copy.deepcopy(model)), x) < 1e-6
