"""Priors over weights, one per file; `PRIORS` lists them."""

from vbdrop.priors.base import Prior, log_alpha_of
from vbdrop.priors.hierarchical import Hierarchical
from vbdrop.priors.inverse_gamma import InverseGamma
from vbdrop.priors.log_uniform import LogUniform, LogUniformCubic
from vbdrop.priors.table import PRIORS, as_prior
from vbdrop.priors.two_level import TwoLevelPrior, kl_given_gamma

__all__ = [
    "PRIORS",
    "Hierarchical",
    "InverseGamma",
    "LogUniform",
    "LogUniformCubic",
    "Prior",
    "TwoLevelPrior",
    "as_prior",
    "kl_given_gamma",
    "log_alpha_of",
]
