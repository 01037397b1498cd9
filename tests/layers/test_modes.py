import dataclasses
import math
import pickle

import pytest
from torch import nn

from vbdrop.layers import Rates, Units, Weights
from vbdrop.layers.modes import without_filters
from vbdrop.priors import Hierarchical, InverseGamma, LogUniform, LogUniformCubic

MODES = [Weights, Units, Rates]


def chosen(name: str, module: nn.Module) -> bool:
    return True


@pytest.mark.parametrize("mode", MODES)
def test_a_prior_is_taken_by_name_or_as_itself(mode):
    assert mode().prior == Hierarchical()
    assert mode(prior="log_uniform").prior == LogUniform()
    own = InverseGamma(shape=2.0)
    assert mode(prior=own).prior is own
    assert mode(prior="log_uniform") == mode(prior=LogUniform())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("wrong", "error"), [("laplace", ValueError), (3, TypeError), (Hierarchical, TypeError)])
def test_a_wrong_prior_is_named(mode, wrong, error):
    with pytest.raises(error, match="`prior` must be"):
        mode(prior=wrong)


@pytest.mark.parametrize("mode", [Weights, Units])
def test_a_prior_that_never_prunes_is_refused_where_pruning_is_the_point(mode):
    with pytest.raises(ValueError, match=rf"`prior` of {mode.__name__} must allow any alpha.*Use it with Rates"):
        mode(prior="log_uniform_cubic")
    assert Rates(prior="log_uniform_cubic").prior == LogUniformCubic()


@pytest.mark.parametrize(
    ("mode", "name"),
    [(Weights, "threshold"), (Weights, "log_sigma2"), (Units, "threshold"), (Units, "log_sigma2"), (Rates, "rate")],
)
@pytest.mark.parametrize("wrong", ["3", None, math.nan, math.inf, True])
def test_a_wrong_number_is_named(mode, name, wrong):
    with pytest.raises(TypeError, match=rf"`{name}` of {mode.__name__} must be a finite number; got {wrong!r}"):
        mode(**{name: wrong})


@pytest.mark.parametrize(("mode", "name"), [*((mode, "filter_fn") for mode in MODES), (Units, "outputs")])
def test_a_wrong_filter_is_named(mode, name):
    with pytest.raises(TypeError, match=rf"`{name}` of {mode.__name__} must be a function.*got 'conv2'"):
        mode(**{name: "conv2"})
    assert getattr(mode(**{name: chosen}), name) is chosen


@pytest.mark.parametrize("wrong", ["neuron", None, 3])
def test_a_wrong_per_lists_the_right_ones(wrong):
    with pytest.raises(ValueError, match=rf"`per` of Rates must be one of 'weight', 'unit', 'layer'; got {wrong!r}"):
        Rates(per=wrong)


@pytest.mark.parametrize("wrong", [0, 1, -0.1, 1.5])
def test_a_rate_is_a_probability(wrong):
    with pytest.raises(ValueError, match=rf"`rate` of Rates must lie between 0 and 1; got {wrong}"):
        Rates(rate=wrong)


def test_a_rate_that_the_prior_does_not_reach_is_refused():
    with pytest.raises(ValueError, match=r"`rate` of Rates must be at most 0\.5 with LogUniformCubic\(\).*got 0\.6"):
        Rates(prior="log_uniform_cubic", rate=0.6)
    assert Rates(prior="log_uniform_cubic", rate=0.5).log_alpha == 0.0


@pytest.mark.parametrize(("rate", "alpha"), [(0.5, 1.0), (0.1, 1 / 9), (0.9, 9.0)])
def test_alpha_is_the_odds_of_the_rate(rate, alpha):
    assert math.exp(Rates(rate=rate).log_alpha) == pytest.approx(alpha, rel=1e-12)


def test_gates_may_not_start_dead():
    with pytest.raises(ValueError, match=r"every gate starts dead; got log_sigma2=1\.0, threshold=1\.0"):
        Units(log_sigma2=1.0, threshold=1.0)


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_immutable(mode):
    with pytest.raises(dataclasses.FrozenInstanceError):
        mode().prior = "log_uniform"


@pytest.mark.parametrize(
    "mode",
    [
        Weights(threshold=2.0, filter_fn=lambda module, name: True),
        Units(threshold=1.0, filter_fn=lambda module, name: True, outputs=lambda module, name: True),
        Rates(rate=0.3, filter_fn=lambda module, name: True),
    ],
    ids=lambda mode: type(mode).__name__,
)
def test_without_its_filters_a_mode_pickles_and_keeps_the_rest(mode):
    kept = without_filters(mode)
    assert pickle.loads(pickle.dumps(kept)) == kept
    filters = {"filter_fn", "outputs"}
    names = {field.name for field in dataclasses.fields(mode)} - filters
    assert all(getattr(kept, name) == getattr(mode, name) for name in names)
    assert all(getattr(kept, name, None) is None for name in filters)
