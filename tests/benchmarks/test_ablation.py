import torch
from benchmarks.ablation import KERNELS, off, without
from torch import nn

import vbdrop
from vbdrop.kernels import weights

MODES = {"vbdrop Weights": vbdrop.Weights(), "vbdrop Rates": vbdrop.Rates(per="unit"), "vbdrop Units": vbdrop.Units()}


def test_what_is_off_is_off_for_the_step_alone(compiler):
    """With another path, the noise comes from another generator or the graph has other steps."""
    assert {mode for mode, _ in KERNELS.values()} == set(MODES)
    for mode, places in KERNELS.values():
        names = []
        model = nn.Linear(40, 30)
        vbdrop.convert_(model, MODES[mode])

        def step(call, model=model, names=names):
            out = model(torch.ones(2, 40)).sum() + vbdrop.kl(model)
            names.append((out.item(), str(out.grad_fn.next_functions[0][0].next_functions)))

        for function in (step, off(step, places), step):
            torch.manual_seed(0)
            function(0)
        assert names[0] == names[2]


def test_a_choice_comes_back_after_an_error():
    before = weights.takes
    try:
        with without([(weights, "takes")]):
            assert not weights.takes(torch.ones(2))
            raise ValueError
    except ValueError:
        pass
    assert weights.takes is before
