"""VBD's learned rates: what is counted, and rates that follow the penalty."""

import math

import pytest
from tests.trained import above, below
from torch import nn

import vbdrop
from vbdrop.methods import VBDRates


@pytest.mark.parametrize(("per", "rates"), [("layer", 1), ("unit", 5), ("weight", 15)])
def test_the_penalty_is_a_sum_over_weights_whatever_shares_a_rate(per, rates):
    model = VBDRates(per=per, rate=0.2, input_rate=0.2).build(nn.Linear(5, 3))
    assert model.log_alpha.numel() == rates
    assert vbdrop.kl(model).item() == pytest.approx(15 * 0.5 * math.log(1 + 4), rel=1e-5)


@pytest.mark.trained
def test_more_penalty_gives_larger_rates_and_nothing_dies(task):
    means = []
    for weight in (0.0, 1.0):
        method = VBDRates(kl_weight=weight)
        model = task.fit(method, epochs=8)
        means.append(sum(row.p for row in vbdrop.rates(model).values()) / 3)
        plain = method.finish(model)
        assert all(bool(layer.weight.all()) for layer in plain.modules() if isinstance(layer, nn.Linear))
        below(15, task.error(plain), mean=10.1, sd=0.85)
    below(0.1, means[0], mean=0.0832, sd=0.00071)
    above(0.1, means[1], mean=0.19, sd=0.0011)


def test_an_unknown_sharing_is_refused():
    with pytest.raises(ValueError, match="`per` of VBDRates must be one of 'weight', 'unit', 'layer'; got 'row'"):
        VBDRates(per="row")


def test_the_rates_have_no_weight_decay():
    model = VBDRates().build(nn.Linear(5, 3))
    groups = VBDRates().groups(model, 1e-3)
    assert [group["weight_decay"] for group in groups] == [0.0]
    assert any(parameter is model.log_alpha for parameter in groups[0]["params"])
