import math

import pytest
import torch
from torch import nn

from vbdrop import Rates, Units, Weights, convert_, rates
from vbdrop.layers import NoisyTensor, Variational
from vbdrop.priors import Hierarchical


@pytest.fixture
def model() -> nn.Sequential:
    """Weights of 1 and 2, with log alphas of -2, 0, 2 and 4, the threshold between the last two."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh())
    convert_(model, Weights(threshold=3.0), Units())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 2.0], [-1.0, -2.0]]))
        model[0].log_sigma2.copy_(torch.tensor([[-2.0, 0.0], [2.0, 4.0]]) + model[0].weight.square().log())
        model[0].gate.log_sigma2.copy_(torch.tensor([math.log(0.25), 1.0]))
    return model


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def test_p_is_the_mean_of_the_rates_and_the_dead_are_counted(model):
    table = rates(model)
    assert list(table) == ["0", "0.gate"]
    assert table["0"].p == pytest.approx((sigmoid(-2) + 0.5 + sigmoid(2) + sigmoid(4)) / 4, abs=1e-6)
    assert (table["0"].count, table["0"].dead, table["0"].dead_share) == (4, 1, 0.25)
    assert table["0.gate"].p == pytest.approx((0.2 + sigmoid(1)) / 2, abs=1e-6)
    assert (table["0.gate"].count, table["0.gate"].dead, table["0.gate"].dead_share) == (2, 1, 0.5)


def test_it_is_readable_when_printed_and_in_a_notebook(model):
    lines = [
        "layer    rate p      count       dead   dead %",
        "0         0.621          4          1    25.00",
        "0.gate    0.466          2          1    50.00",
    ]
    assert str(rates(model)).splitlines() == lines
    assert repr(rates(model)).splitlines() == lines


@pytest.mark.parametrize("per", ["weight", "unit", "layer"])
def test_learned_rates_are_told_for_every_weight_and_none_is_dead(per):
    layer = nn.Conv2d(6, 4, 3, groups=2)
    convert_(layer, Rates(per=per, rate=0.3))
    table = rates(layer)
    assert list(table) == ["weight"]
    assert table["weight"].p == pytest.approx(0.3, abs=1e-6)
    assert (table["weight"].count, table["weight"].dead) == (4 * 3 * 9, 0)
    with torch.no_grad():
        layer.log_alpha.fill_(50.0)
    assert rates(layer)["weight"].dead == 0


def test_the_rate_is_the_one_that_is_used_where_the_prior_bounds_it():
    layer = nn.Linear(2, 2)
    convert_(layer, Rates(prior="log_uniform_cubic"))
    with torch.no_grad():
        layer.log_alpha.fill_(3.0)
    assert rates(layer)["weight"].p == 0.5


def test_a_module_with_several_noisy_tensors_has_a_row_for_each():
    class TwoTensors(Variational):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(5))
            self.log_sigma2 = nn.ParameterList([torch.zeros(3), torch.full((5,), -1.0)])

        def variational(self):
            for name, log_sigma2 in zip("ab", self.log_sigma2, strict=True):
                yield NoisyTensor(name, getattr(self, name), Hierarchical(), 3.0, log_sigma2)

    model = nn.ModuleDict({"cell": TwoTensors()})
    assert {name: rate.count for name, rate in rates(model).items()} == {"cell.a": 3, "cell.b": 5}
    assert rates(model)["cell.a"].p == 0.5
    assert list(rates(model["cell"])) == ["a", "b"]


def test_nothing_is_computed_for_a_gradient(model):
    model[0].weight.requires_grad_(True)
    table = rates(model)
    assert isinstance(table["0"].p, float)
    assert model[0].weight.grad is None


def test_a_model_without_rates_is_an_error():
    with pytest.raises(ValueError, match=r"no converted layer, so it has no rates; call vbdrop\.convert_"):
        rates(nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module; got str"):
        rates("model")


def test_a_layer_without_rates_is_named_with_those_that_have_some(model):
    table = rates(model)
    names = ", ".join(map(repr, table))
    with pytest.raises(KeyError, match=f"no layer '7' has rates; those that have are {names}"):
        table["7"]
    assert "7" not in table
