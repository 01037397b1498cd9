import pytest
import torch
from benchmarks.ablation import KERNELS, off, without
from torch import nn

import vbdrop
from vbdrop.kernels import binding, weights

MODES = {"vbdrop Weights": vbdrop.Weights(), "vbdrop Rates": vbdrop.Rates(per="unit"), "vbdrop Units": vbdrop.Units()}


def steps_of(node):
    """The names of all steps of a graph."""
    return {node.name()} | {name for after, _ in node.next_functions if after for name in steps_of(after)}


def test_what_is_off_is_off_for_the_step_alone(products_of_kernels):
    assert {mode for mode, _ in KERNELS.values()} == set(MODES)
    for name, (mode, places) in KERNELS.items():
        graphs = []
        model = nn.Linear(40, 30)
        vbdrop.convert_(model, MODES[mode])

        def step(call, model=model, graphs=graphs):
            graphs.append(steps_of(model(torch.ones(2, 40)).grad_fn))

        for function in (step, off(step, places), step):
            function(0)
        assert graphs[0] == graphs[2]
        assert (graphs[0] == graphs[1]) == ("KL" in name), "the KL is no part of a forward"


@pytest.fixture
def products_of_kernels(compiler):
    if not binding.has_products():
        pytest.skip("NOT TESTED: the kernels have no products for this processor, and torch's are used")


def test_a_choice_comes_back_after_an_error():
    before = weights.takes
    try:
        with without([(weights, "takes")]):
            assert not weights.takes(torch.ones(2))
            raise ValueError
    except ValueError:
        pass
    assert weights.takes is before
