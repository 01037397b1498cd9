import pytest

from vbdrop.priors import PRIORS, Hierarchical, InverseGamma, Prior, as_prior


def test_a_name_gives_its_prior():
    assert {name: type(as_prior(name)).__name__ for name in PRIORS} == {
        "hierarchical": "Hierarchical",
        "log_uniform": "LogUniform",
        "log_uniform_cubic": "LogUniformCubic",
        "inverse_gamma": "InverseGamma",
    }
    assert all(isinstance(as_prior(name), Prior) for name in PRIORS)


def test_a_prior_stays_itself():
    prior = InverseGamma(shape=2.0)
    assert as_prior(prior) is prior


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"`prior` must be one of 'hierarchical', 'log_uniform'.*got 'laplace'"):
        as_prior("laplace")


@pytest.mark.parametrize("wrong", [None, 3, Hierarchical, ["hierarchical"]])
def test_what_is_no_prior_is_refused(wrong):
    with pytest.raises(TypeError, match=r"`prior` must be a name or a vbdrop\.priors\.Prior; got"):
        as_prior(wrong)


def test_the_table_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        PRIORS["mine"] = Hierarchical
