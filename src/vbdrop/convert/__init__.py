"""Conversion of a plain model to a Bayesian one and back, its rates, and its parameter groups."""

from vbdrop.convert.conversion import convert_, deterministic_
from vbdrop.convert.freezing import freeze_dead_
from vbdrop.convert.groups import param_groups
from vbdrop.convert.rates import Rate, RateTable, rates
from vbdrop.convert.recalibration import recalibrate_
from vbdrop.convert.report import Conversion

__all__ = [
    "Conversion",
    "Rate",
    "RateTable",
    "convert_",
    "deterministic_",
    "freeze_dead_",
    "param_groups",
    "rates",
    "recalibrate_",
]
