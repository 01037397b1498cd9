import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import vbdrop
from vbdrop import Rates, Units, Weights, convert_
from vbdrop.convert.survey import Survey, candidates, why_not_again
from vbdrop.layers import LAYERS


def pruned(name: str) -> nn.Module:
    return prune.l1_unstructured(nn.Linear(4, 4), name, 0.5)


def parametrized(name: str) -> nn.Module:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, name, nn.Identity())
    return layer


def tied_to_an_embedding() -> nn.Module:
    model = nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    return model


def tied_bias() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].bias = model[0].bias
    return model


def own_projection() -> nn.Module:
    """Attention reads its projection's weight, whatever class the projection has."""
    attention = nn.MultiheadAttention(4, 2)
    attention.out_proj = nn.Linear(4, 4)
    return attention


class Doubling(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


LEFT = {
    "attention": (lambda: nn.MultiheadAttention(4, 2), "", "MultiheadAttention uses its weights functionally"),
    "its projection": (lambda: nn.MultiheadAttention(4, 2), "out_proj", "MultiheadAttention uses its weights"),
    "a projection of one's own": (own_projection, "out_proj", "MultiheadAttention uses its weights functionally"),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(4, 4)), "", "remove_parametrizations of torch"),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Conv1d(4, 4, 1)), "", "its parameters are parametriz"),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(4, 4)), "", "its parameters are parametrized"),
    "a parametrized bias": (lambda: parametrized("bias"), "", "its parameters are parametrized"),
    "old spectral norm": (lambda: nn.utils.spectral_norm(nn.Linear(4, 4)), "", "its weight is not a plain parameter"),
    "pruned": (lambda: pruned("weight"), "", "its weight is not a plain parameter"),
    "tied": (tied_to_an_embedding, "1", "its parameters are shared with another module"),
    "a tied bias": (tied_bias, "0", "its parameters are shared with another module"),
    "lazy": (lambda: nn.LazyLinear(4), "", "LazyLinear has no weights yet; run one forward first"),
    "a subclass": (lambda: Doubling(4, 4), "", "Doubling is a subclass that may compute something else"),
    "an embedding": (lambda: nn.Embedding(4, 4), "", "its rows are looked up, not multiplied"),
    "a recurrent cell": (lambda: nn.LSTMCell(4, 4), "", "no noisy layer for LSTMCell"),
    "a norm": (lambda: nn.BatchNorm1d(4), "", "no noisy layer for BatchNorm1d"),
    "a bilinear layer": (lambda: nn.Bilinear(4, 4, 4), "", "it multiplies two inputs"),
    "an integer weight": (
        lambda: setattr_(nn.Linear(4, 4), weight=nn.Parameter(torch.ones(4, 4, dtype=torch.int8), False)),
        "",
        "its weight is torch.int8",
    ),
}


def setattr_(module: nn.Module, **values: object) -> nn.Module:
    for name, value in values.items():
        setattr(module, name, value)
    return module


@pytest.mark.parametrize("case", LEFT)
def test_what_cannot_be_converted_is_left_with_its_reason(case):
    """In a model with a layer that can: the module stays what it was, and works as it did."""
    build, name, reason = LEFT[case]
    model = nn.ModuleDict({"other": nn.Linear(4, 4), "it": build()})
    full = f"it.{name}".rstrip(".")
    module = model.get_submodule(full)
    before = type(module), list(module.__dict__), list(module._parameters)
    for mode in (Weights(), Units()):
        report = convert_(model, mode)
        assert reason in report.left[full]
        assert "other" in report.converted
    assert (type(module), list(module.__dict__), list(module._parameters)) == before
    assert full not in vbdrop.rates(model)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_the_old_weight_norm_is_left():
    model = nn.utils.weight_norm(nn.Linear(4, 4))
    assert Survey(model).why_left(model) == "its weight is not a plain parameter"


def test_a_projection_that_was_registered_is_left_all_the_same(monkeypatch):
    """Attention would read its weight and bypass the noise."""

    class NoisyQuantizable(vbdrop.layers.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear):
        pass

    monkeypatch.setitem(LAYERS, nn.modules.linear.NonDynamicallyQuantizableLinear, NoisyQuantizable)
    attention = nn.MultiheadAttention(4, 2)
    assert Survey(attention).why_left(attention.out_proj) is not None


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_every_layer_of_the_table_can_be_converted_before_and_after(kind):
    module = kind(2, 3) if issubclass(kind, nn.Linear) else kind(2, 3, 1)
    assert Survey(module).why_left(module) is None
    convert_(module, Weights())
    assert Survey(module).why_left(module) is None


def test_a_module_used_twice_is_not_tied():
    shared = nn.Linear(4, 4)
    assert Survey(nn.Sequential(shared, nn.ReLU(), shared)).why_left(shared) is None


def test_a_lazy_layer_can_be_converted_after_its_first_forward():
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
    model(torch.randn(1, 3))
    assert convert_(model, Weights()).left == {}


def test_a_pruning_that_was_made_permanent_is_no_hindrance():
    layer = prune.remove(pruned("weight"), "weight")
    zeros = layer.weight == 0
    convert_(layer, Weights())
    assert torch.equal(next(layer.variational()).dead(), zeros)


def test_candidates_are_modules_with_parameters_once_and_no_gates():
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.BatchNorm1d(4, affine=False), parametrized("weight"))
    convert_(model, Units())
    assert [name for name, _ in candidates(model)] == ["0", "4"]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (Weights(), Weights(), "already converted with Weights"),
        (Weights(), Rates(), "already converted with Weights"),
        (Rates(), Weights(), "already converted with Rates"),
        (Units(), Units(), "already has gates"),
        (Units(filter_fn=lambda m, n: False, outputs=lambda m, n: True), Units(), "already has gates"),
        (Weights(), Units(), None),
        (Units(), Rates(), None),
    ],
)
def test_a_layer_takes_noisy_weights_once_and_gates_once(first, second, reason):
    layer = nn.Linear(4, 4)
    assert why_not_again(layer, first) is None
    convert_(layer, first)
    assert why_not_again(layer, second) == reason
