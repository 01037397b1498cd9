"""Propagate means and variances through a network in one pass, as an alternative to sampling its noise."""

from vbdrop.moments.gaussian import Moments, NoRuleError
from vbdrop.moments.propagation import propagate_moments

__all__ = ["Moments", "NoRuleError", "propagate_moments"]
