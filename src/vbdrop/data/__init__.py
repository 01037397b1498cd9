"""The data sets."""

from vbdrop.data.dataset import Dataset
from vbdrop.data.digits import Digits, digits
from vbdrop.data.errors import DataError
from vbdrop.data.normalisation import NORMALISATIONS, normalise
from vbdrop.data.sources import get, load
from vbdrop.data.splits import SPLITS, hold_out
from vbdrop.data.status import Status, status
from vbdrop.data.table import DATASETS

__all__ = [
    "DATASETS",
    "NORMALISATIONS",
    "SPLITS",
    "DataError",
    "Dataset",
    "Digits",
    "Status",
    "digits",
    "get",
    "hold_out",
    "load",
    "normalise",
    "status",
]
