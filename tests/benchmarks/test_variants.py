import pytest
import torch
from benchmarks.variants import N_TRAIN, OWN, VARIANTS, replace_layers_, with_kl
from torch import nn

import vbdrop


def test_layers_are_replaced_wherever_they_are():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Sequential(nn.ReLU(), nn.Linear(8, 5)))
    made = []

    def other(*sizes, **options):
        made.append((sizes, options))
        return nn.Identity()

    replace_layers_(model, other, other)
    assert made == [((3, 4, (3, 3)), {"padding": (1, 1)}), ((8, 5), {})]
    assert not any(isinstance(module, nn.Linear | nn.Conv2d) for module in model.modules())


def test_a_kl_is_shared_by_the_examples():
    assert with_kl(lambda: torch.tensor(2.0 * N_TRAIN))(torch.tensor(1.0)) == 3


@pytest.mark.parametrize("name", OWN)
def test_own_variants_have_their_objective(name):
    model = nn.Sequential(nn.Linear(4, 3))
    loss = VARIANTS[name].make(model)(torch.tensor(1.0))
    assert loss.item() == pytest.approx(1 if name == "plain" else 1 + vbdrop.kl(model).item() / N_TRAIN)


def test_packages_are_pinned_and_say_what_they_sample():
    others = {name: variant for name, variant in VARIANTS.items() if name not in OWN}
    assert {name: variant.samples for name, variant in others.items()} == {
        "cplxmodule": "activations",
        "pytorch-ard": "activations",
        "bayesian-torch": "weights",
        "blitz": "weights",
        "torchbnn": "weights",
    }
    assert all(variant.requirement.count("==") == 1 for variant in others.values())
