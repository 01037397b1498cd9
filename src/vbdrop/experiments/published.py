"""The figures of the five tables of "Variational Bayesian Dropout with a Hierarchical Prior" (Liu et al., CVPR 2019).

Each is under the table's number, then the row and the column of :mod:`vbdrop.experiments.protocol`. The paper gives
neither the number of runs nor a spread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Published:
    """The figures of the paper in a cell.

    Attributes:
        error: The test error in percent.
        ratio: How many times fewer weights remain: printed in Table 4, and computed from the neurons for Table 5.
        sparsity: The zeros of each layer, in percent (Table 4); None if the paper has none.
        units: The neurons of each layer (Table 5).
    """

    error: float
    ratio: float | None = None
    sparsity: tuple[float, ...] | None = None
    units: tuple[int, ...] | None = None


Cells = Mapping[str, Mapping[str, Published]]


def _errors(columns: tuple[str, ...], rows: dict[str, tuple[float, ...]]) -> dict[str, dict[str, Published]]:
    return {
        row: {column: Published(error) for column, error in zip(columns, errors, strict=True)}
        for row, errors in rows.items()
    }


_TABLE_1 = _errors(
    ("100", "340", "580", "820", "1060"),
    {
        "none": (1.80, 1.77, 1.78, 1.78, 1.71),
        "bernoulli": (1.69, 1.68, 1.67, 1.67, 1.63),
        "gaussian-noise": (1.70, 1.66, 1.68, 1.69, 1.62),
        "gaussian": (1.66, 1.64, 1.71, 1.65, 1.64),
        "concrete": (2.39, 1.61, 1.55, 1.54, 1.51),
        "vd": (1.69, 1.62, 1.67, 1.62, 1.63),
        "vbd": (1.56, 1.53, 1.53, 1.52, 1.45),
    },
)

_ADVERSARIAL_2 = (45.50, 42.35, 42.50)  # the paper has one row and does not say which of the two versions it is

_TABLE_2 = _errors(
    ("1", "1.5", "2"),
    {
        "none": (48.34, 48.13, 47.56),
        "bernoulli": (45.55, 43.38, 42.69),
        "gaussian-noise": (46.52, 43.50, 42.79),
        "sadd": _ADVERSARIAL_2,
        "vadd": _ADVERSARIAL_2,
        "concrete": (43.47, 42.68, 42.19),
        "vd": (44.12, 42.99, 42.60),
        "vbd": (39.50, 38.88, 38.52),
    },
)

_TABLE_3 = _errors(
    ("1",),
    {
        "none": (22.01,),
        "bernoulli": (20.31,),
        "gaussian-noise": (20.22,),
        "concrete": (18.95,),
        "sadd": (18.66,),
        "vadd": (18.66,),
        "vd": (19.74,),
        "vbd": (17.46,),
    },
)

_TABLE_4 = {
    "original": {"lenet-300-100": Published(1.64, 1), "lenet-5": Published(0.80, 1)},
    "pruning": {
        "lenet-300-100": Published(1.59, 12, (92.0, 91.0, 74.0)),
        "lenet-5": Published(0.77, 12, (34, 88, 92.0, 81)),
    },
    "dns": {
        "lenet-300-100": Published(1.99, 56, (98.2, 98.2, 94.5)),
        "lenet-5": Published(0.91, 111, (86, 97, 99.3, 96)),
    },
    "sws": {"lenet-300-100": Published(1.94, 23), "lenet-5": Published(0.97, 200)},
    "vd": {
        "lenet-300-100": Published(1.94, 68, (98.9, 97.2, 62.0)),
        "lenet-5": Published(0.75, 280, (67, 98, 99.8, 95)),
    },
    "vbd-low-error": {
        "lenet-300-100": Published(1.67, 66, (98.7, 97.4, 87.4)),
        "lenet-5": Published(0.74, 198, (69, 98, 99.7, 95)),
    },
    "vbd": {
        "lenet-300-100": Published(1.76, 81, (98.9, 98.1, 90.9)),
        "lenet-5": Published(0.81, 290, (65, 98, 99.8, 97)),
    },
}

_TABLE_5 = {
    "original": {
        "lenet-500-300": Published(1.54, 1, units=(784, 500, 300, 10)),
        "lenet-5": Published(0.80, 1, units=(20, 50, 800, 500)),
    },
    "vd": {
        "lenet-500-300": Published(1.57, 3.73, units=(537, 217, 130, 10)),
        "lenet-5": Published(0.75, 10.9, units=(17, 32, 329, 75)),
    },
    "ssl": {
        "lenet-500-300": Published(1.49, 6.06, units=(434, 174, 78, 10)),
        "lenet-5": Published(1.00, 1.06, units=(3, 12, 800, 500)),
    },
    "sbp": {
        "lenet-500-300": Published(1.55, 11.2, units=(245, 160, 55, 10)),
        "lenet-5": Published(0.86, 5.09, units=(3, 18, 284, 283)),
    },
    "vbd": {
        "lenet-500-300": Published(1.35, 14.0, units=(179, 160, 60, 10)),
        "lenet-5": Published(0.66, 19.4, units=(16, 34, 123, 62)),
    },
}

PUBLISHED: Mapping[int, Cells] = MappingProxyType({1: _TABLE_1, 2: _TABLE_2, 3: _TABLE_3, 4: _TABLE_4, 5: _TABLE_5})
"""Table -> row -> column -> figures."""


def published_in(table: int | None, row: str, column: str) -> Published | None:
    """Return the paper's figures in a cell; None if it has no such cell, and for a table that is not the paper's.

    Example:
        >>> published_in(1, "vbd", "340").error
        1.53
    """
    return None if table is None else PUBLISHED[table].get(row, {}).get(column)
