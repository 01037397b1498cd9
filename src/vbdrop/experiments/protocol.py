"""The protocols of the paper's five tables: what is run, and with what budget, the same for all rows of a column.

What the paper says is kept: networks, data, and 50 epochs for Table 1; not the 100 epochs of Tables 2 and 3, which have
10 and 7, about 5,000 steps. What it does not say is fixed here once for all methods: Adam with a learning rate of 1e-3,
batches of 100, and the schedules of the papers whose settings it follows. Where an epoch is dear, there are fewer of
them and fewer seeds; each table prints its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

from vbdrop.train import Budget, Method

Kind: TypeAlias = Literal["error", "weights", "neurons", "ablation"]
"""What a table is about: the error alone, the error and the weights or neurons that are left, or a changed setting."""

TRIALS = 4
"""How many settings of a method are tried on the validation split, at most: the same for every method."""

MARGIN = 0.5
"""How many points of validation error above the plain network's a method may give for a smaller one."""

N_VALID = 5_000


@dataclass(frozen=True)
class Column:
    """A network on a data set, with its budget.

    Attributes:
        key: Its name on the command line.
        title: Its name in the table.
        model: A key of :data:`vbdrop.models.MODELS`.
        data: A key of :data:`vbdrop.data.DATASETS`.
        budget: For each of its runs; its seed is that of the trials.
        seeds: How many seeds the figure is the mean of: 0, 1, 2, ...
        model_args: The arguments of the network.
        normalise: How pixels become inputs.
        select_on: The column on which the hyper-parameters are chosen; None for this one.
        n_valid: How many training examples are held out for that.
        n_train: How many training examples there are; None for all.
        shrink_every: Every so many epochs, units that stayed dead are taken out of the network in training, where the
            method has such; None for never. Training gets cheaper by it.
    """

    key: str
    title: str
    model: str
    data: str
    budget: Budget
    seeds: int = 1
    model_args: Mapping[str, Any] = field(default_factory=dict)
    normalise: str = "unit"
    select_on: str | None = None
    n_valid: int = N_VALID
    n_train: int | None = None
    shrink_every: int | None = None

    def budget_of(self, method: Method, seed: int) -> Budget:
        """Return the budget of a run in this column.

        Example:
            >>> from vbdrop.methods import Plain, VBDGates
            >>> column = PROTOCOLS[5].column("lenet-5")
            >>> [column.budget_of(method, seed=1).shrink_every for method in (VBDGates(), Plain())]
            [2, None]
        """
        return replace(self.budget, seed=seed, shrink_every=self.shrink_every if method.shrinks else None)


@dataclass(frozen=True)
class Row:
    """A method, and how its hyper-parameters are chosen.

    Attributes:
        key: Its name on the command line, and in the published tables.
        title: Its name in the table.
        method: A key of :data:`vbdrop.methods.METHODS`.
        fixed: Hyper-parameters that are not chosen.
        margin: None: the setting with the lowest validation error is chosen. A number: the smallest network whose
            validation error is at most so many points above the plain network's, and if there is none, the one with
            the lowest error.
        ours: Whether it is the paper's own method.
        base: The key of the row of which it changes a setting; None in the paper's tables.
        question: What the change is to show; empty in the paper's tables.
    """

    key: str
    title: str
    method: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    margin: float | None = None
    ours: bool = False
    base: str | None = None
    question: str = ""


@dataclass(frozen=True)
class Protocol:
    """A table.

    Attributes:
        number: Its number in the paper; None for one of our own.
        title: What it shows.
        kind: What it is about.
        columns: Its networks.
        rows: Its methods.
        trials: How many settings of a method are tried at most.
        quick: Whether it is the small version, whose figures mean nothing.
        on_validation: Whether its figures are of the validation split, so that the test data play no part in them.
        remark: In what the paper's runs differ from ours, as a sentence; empty where they do not.
    """

    number: int | None
    title: str
    kind: Kind
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    trials: int = TRIALS
    quick: bool = False
    on_validation: bool = False
    remark: str = ""

    @property
    def name(self) -> str:
        """What it is called."""
        return "Ablations" if self.number is None else f"Table {self.number}"

    @property
    def command(self) -> str:
        """The command that prints it."""
        return "vbdrop ablation" if self.number is None else f"vbdrop table {self.number}"

    def column(self, key: str) -> Column:
        """Return a column.

        Raises:
            ValueError: There is none of this name.
        """
        return _named("column", self.columns, key, self.name)

    def row(self, key: str) -> Row:
        """Return a row.

        Raises:
            ValueError: There is none of this name.
        """
        return _named("row", self.rows, key, self.name)

    def with_seeds(self, seeds: int) -> "Protocol":
        """Return the same table with another number of seeds in every column."""
        if seeds < 1:
            raise ValueError(f"`seeds` must be a number of runs, an int >= 1; got {seeds!r}.")
        return replace(self, columns=tuple(replace(column, seeds=seeds) for column in self.columns))

    def small(self) -> "Protocol":
        """Return a small version, for a look at whether everything works.

        It has every row and column, on 2,000 of the embedded digits, for four epochs (two for convolutions), with two
        trials and one seed.
        """
        columns = []
        for column in self.columns:
            epochs = 2 if column.model in ("lenet-5", "kingma-cnn") else 4
            budget = replace(column.budget, epochs=epochs, evaluate_every=epochs)
            columns.append(replace(column, data="digits", seeds=1, n_valid=500, n_train=2_000, budget=budget))
        return replace(self, columns=tuple(columns), trials=min(self.trials, 2), quick=True)

    @property
    def reference(self) -> Row:
        """The row of the plain network, against which margins are measured."""
        return next(row for row in self.rows if row.method == "plain")


_Entry = TypeVar("_Entry", Column, Row)


def _named(what: str, entries: tuple[_Entry, ...], key: str, table: str) -> _Entry:
    for entry in entries:
        if entry.key == key:
            return entry
    known = ", ".join(entry.key for entry in entries)
    raise ValueError(f"`{what}` of {table} must be one of {known}; got {key!r}.")


def _regularisers(*keys: str) -> tuple[Row, ...]:
    return tuple(_REGULARISERS[key] for key in keys)


_REGULARISERS = {
    row.key: row
    for row in (
        Row("none", "No dropout", "plain"),
        Row("bernoulli", "Dropout, Bernoulli", "bernoulli-dropout"),
        Row("gaussian-noise", "Dropout, Gaussian", "gaussian-noise"),
        Row("gaussian", "Gaussian dropout", "gaussian-dropout"),
        Row("concrete", "Concrete dropout", "concrete-dropout"),
        Row("sadd", "Adversarial dropout (SAdD)", "adversarial-dropout", {"mode": "sadd"}),
        Row("vadd", "Adversarial dropout (VAdD)", "adversarial-dropout", {"mode": "vadd"}),
        Row("vd", "VD", "variational-dropout"),
        Row("vd-a", "VD (type A)", "variational-dropout", {"noise": "a"}),
        Row("vbd", "VBD", "vbd-rates", ours=True),
    )
}

_MNIST_MLP = Budget(epochs=50)
_KINGMA = Budget(epochs=10, evaluate_every=5)
_KINGMA_SVHN = Budget(epochs=7, evaluate_every=5)
_FEWER_EPOCHS = "The paper's runs have 100 epochs."
_LENET = Budget(epochs=100)
_LENET_5 = Budget(epochs=60, schedule="linear", evaluate_every=5)
_SHRINK_EVERY = 2

_TABLE_1 = Protocol(
    number=1,
    title="Test error (%) on MNIST, three hidden layers",
    kind="error",
    columns=tuple(
        Column(
            str(units),
            f"{units} units",
            "mlp",
            "mnist",
            _MNIST_MLP,
            seeds=3 if units == 340 else 1,
            model_args={"units": units},
            select_on=None if units == 340 else "340",
        )
        for units in (100, 340, 580, 820, 1060)
    ),
    rows=_regularisers(
        "none", "bernoulli", "gaussian-noise", "gaussian", "concrete", "vd", "vbd", "vd-a", "sadd", "vadd"
    ),
)

_TABLE_2 = Protocol(
    number=2,
    title="Test error (%) on CIFAR-10, Kingma's network",
    kind="error",
    columns=tuple(
        Column(
            f"{scale:g}",
            f"scale {scale:g}",
            "kingma-cnn",
            "cifar10",
            _KINGMA,
            model_args={"scale": scale},
            normalise="standardised",
            select_on=None if scale == 1 else "1",
        )
        for scale in (1.0, 1.5, 2.0)
    ),
    rows=_regularisers("none", "bernoulli", "gaussian-noise", "sadd", "vadd", "concrete", "vd", "vbd"),
    remark=_FEWER_EPOCHS,
)

_TABLE_3 = Protocol(
    number=3,
    title="Test error (%) on SVHN, Kingma's network",
    kind="error",
    columns=(
        Column("1", "scale 1", "kingma-cnn", "svhn", _KINGMA_SVHN, model_args={"scale": 1.0}, normalise="standardised"),
    ),
    rows=_regularisers("none", "bernoulli", "gaussian-noise", "concrete", "sadd", "vadd", "vd", "vbd"),
    remark=_FEWER_EPOCHS,
)

LENET_300_100 = Column(
    "lenet-300-100", "LeNet-300-100", "lenet-300-100", "mnist", _LENET, seeds=3, shrink_every=_SHRINK_EVERY
)
"""The network of most figures on compression."""
_LENET_500_300 = replace(LENET_300_100, key="lenet-500-300", title="LeNet-500-300", model="lenet-500-300")
_LENET_5_CAFFE = Column("lenet-5", "LeNet-5-Caffe", "lenet-5", "mnist", _LENET_5, shrink_every=_SHRINK_EVERY)

_TABLE_4 = Protocol(
    number=4,
    title="Compressing weights on MNIST",
    kind="weights",
    columns=(LENET_300_100, replace(_LENET_5_CAFFE, select_on="lenet-300-100")),
    rows=(
        Row("original", "Original", "plain"),
        Row("pruning", "Pruning (Han)", "magnitude-pruning", margin=MARGIN),
        Row("dns", "DNS", "network-surgery", margin=MARGIN),
        Row("sws", "SWS", "soft-weight-sharing", margin=MARGIN),
        Row("vd", "Sparse VD", "sparse-vd", margin=MARGIN),
        Row("vbd-low-error", "VBD (low error)", "vbd-weights", margin=0.0, ours=True),
        Row("vbd", "VBD (high sparsity)", "vbd-weights", margin=MARGIN, ours=True),
        Row("gradual", "Gradual pruning", "gradual-pruning", margin=MARGIN),
        Row("rigl", "RigL", "rigl", margin=MARGIN),
    ),
)

_TABLE_5 = Protocol(
    number=5,
    title="Compressing neurons on MNIST",
    kind="neurons",
    columns=(_LENET_500_300, replace(_LENET_5_CAFFE, select_on="lenet-500-300")),
    rows=(
        Row("original", "Original", "plain"),
        Row("vd", "Sparse VD", "sparse-vd", margin=MARGIN),
        Row("ssl", "SSL", "ssl", margin=MARGIN),
        Row("sbp", "SBP", "sbp", margin=MARGIN),
        Row("vbd", "VBD (gates)", "vbd-gates", margin=MARGIN, ours=True),
        Row("vibnet", "VIBNet", "vbd-gates", {"weighting": "positions"}, margin=MARGIN),
        Row("l0", "L0", "l0", margin=MARGIN),
    ),
)

PROTOCOLS: Mapping[int, Protocol] = MappingProxyType(
    dict(enumerate((_TABLE_1, _TABLE_2, _TABLE_3, _TABLE_4, _TABLE_5), start=1))
)
"""Table -> its protocol."""


def protocol_of(number: int, *, quick: bool = False) -> Protocol:
    """Return the protocol of a table.

    Args:
        number: 1 to 5.
        quick: Its small version, :meth:`Protocol.small`.

    Raises:
        ValueError: The paper has no such table.

    Example:
        >>> protocol_of(4).column("lenet-300-100").budget.epochs
        100
    """
    if number not in PROTOCOLS:
        raise ValueError(f"`number` must be that of a table of the paper, 1 to {len(PROTOCOLS)}; got {number!r}.")
    return PROTOCOLS[number].small() if quick else PROTOCOLS[number]
