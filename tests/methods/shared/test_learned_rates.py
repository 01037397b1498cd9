"""The first layer starts at its own rate."""

import pytest
from torch import nn

import vbdrop
from vbdrop.methods.shared.learned_rates import convert_rates_
from vbdrop.models import LeNet5


@pytest.mark.parametrize("per", ["layer", "unit", "weight"])
def test_the_first_layer_has_its_own_rate(per):
    model = LeNet5()
    convert_rates_(model, per=per, prior="hierarchical", rate=0.4, input_rate=0.1)
    assert [round(row.p, 4) for row in vbdrop.rates(model).values()] == [0.1, 0.4, 0.4, 0.4]


def test_a_single_layer_is_the_first():
    model = nn.Linear(3, 2)
    convert_rates_(model, per="layer", prior="log_uniform", rate=0.4, input_rate=0.1)
    assert round(vbdrop.rates(model)["weight"].p, 4) == 0.1
