"""The three ways in which a layer becomes noisy: `Weights`, `Units` and `Rates`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from torch import nn

from vbdrop.priors import Prior, as_prior

Filter: TypeAlias = Callable[[nn.Module, str], bool]
"""Selects modules, given the module and its fully qualified name: ``(module, fqn) -> bool``, as torchao does."""

Per: TypeAlias = Literal["weight", "unit", "layer"]
"""What has one learned rate: each weight, each input unit or channel, or the whole layer."""


Cost: TypeAlias = Literal["weights", "macs"]
"""The cost of a channel: the weights, or the multiply-adds per example, that are removed with it."""


def _check_filter(mode: str, name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"`{name}` of {mode} must be a function (module, fqn) -> bool, or None; got {value!r}.")


def _check_number(mode: str, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"`{name}` of {mode} must be a finite number; got {value!r}.")


def _check_prunes(mode: str, prior: Prior) -> None:
    if prior.max_log_alpha is not None:
        raise ValueError(
            f"`prior` of {mode} must allow any alpha; {prior!r} is valid up to log_alpha = {prior.max_log_alpha}, "
            "where nothing ever counts as dead. Use it with Rates."
        )


@dataclass(frozen=True)
class Weights:
    """Every weight learns its own alpha; weights that carry only noise are dropped.

    Attributes:
        prior: The prior's name or a `vbdrop.priors.Prior`.
        threshold: The ``log_alpha`` at or above which a weight is dead.
        log_sigma2: The initial log variance. Small weights start with less, so that none starts dead.
        mask_in_training: Whether the means of dead weights are already dropped in training.
        filter_fn: Chooses the layers, ``(module, fqn) -> bool``; None for all.

    Example:
        >>> Weights(threshold=2.0).threshold
        2.0
    """

    prior: str | Prior = "hierarchical"
    threshold: float = 3.0
    log_sigma2: float = -10.0
    mask_in_training: bool = True
    filter_fn: Filter | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", as_prior(self.prior))
        _check_prunes("Weights", as_prior(self.prior))
        _check_number("Weights", "threshold", self.threshold)
        _check_number("Weights", "log_sigma2", self.log_sigma2)
        _check_filter("Weights", "filter_fn", self.filter_fn)


@dataclass(frozen=True)
class Units:
    """Every unit learns a gate; units that carry only noise are dropped, and the layers around them shrink.

    Gates sit on the inputs of a layer: each input feature of a linear layer, each input channel of a convolution.
    Image channels get no gates: those of the first convolution, and of any other with at most four input channels.

    Attributes:
        prior: The prior's name or a `vbdrop.priors.Prior`.
        threshold: The ``log_alpha`` at or above which a unit is dead.
        log_sigma2: The initial log variance of a gate; its mean starts at 1.
        mask_in_training: Whether dead units are already dropped in training.
        outputs: Selects the layers that also get gates on their output channels, ``(module, fqn) -> bool``; None
            selects no layer.
        filter_fn: Selects the layers that get gates on their inputs, ``(module, fqn) -> bool``; None for all.
        cost: How the KL of a shared gate is weighted, if `vbdrop.convert_` gets example inputs: by the ``"weights"`` or
            the ``"macs"`` that are removed with its channel, relative to their mean over all gates.

    Example:
        >>> Units(outputs=lambda module, name: name == "conv2").threshold
        0.0
    """

    prior: str | Prior = "hierarchical"
    threshold: float = 0.0
    log_sigma2: float = -9.0
    mask_in_training: bool = False
    outputs: Filter | None = None
    filter_fn: Filter | None = None
    cost: Cost = "weights"

    def __post_init__(self) -> None:
        if self.cost not in get_args(Cost):
            raise ValueError(f"`cost` of Units must be 'weights' or 'macs'; got {self.cost!r}.")
        object.__setattr__(self, "prior", as_prior(self.prior))
        _check_prunes("Units", as_prior(self.prior))
        _check_number("Units", "threshold", self.threshold)
        _check_number("Units", "log_sigma2", self.log_sigma2)
        if self.log_sigma2 >= self.threshold:
            raise ValueError(
                "`log_sigma2` of Units must be below `threshold`, or every gate starts dead; "
                f"got log_sigma2={self.log_sigma2}, threshold={self.threshold}."
            )
        _check_filter("Units", "outputs", self.outputs)
        _check_filter("Units", "filter_fn", self.filter_fn)


@dataclass(frozen=True)
class Rates:
    """Gaussian dropout that learns its own rates; nothing is ever removed.

    Attributes:
        per: What has its own rate: each ``"weight"``, each input ``"unit"``, or each ``"layer"``.
        prior: The prior's name or a `vbdrop.priors.Prior`.
        rate: The initial dropout rate p, between 0 and 1; ``alpha = p / (1 - p)``.
        filter_fn: Chooses the layers, ``(module, fqn) -> bool``; None for all.

    Example:
        >>> Rates(per="layer", rate=0.5).log_alpha
        0.0
    """

    per: Per = "unit"
    prior: str | Prior = "hierarchical"
    rate: float = 0.1
    filter_fn: Filter | None = None

    def __post_init__(self) -> None:
        if self.per not in get_args(Per):
            known = ", ".join(map(repr, get_args(Per)))
            raise ValueError(f"`per` of Rates must be one of {known}; got {self.per!r}.")
        object.__setattr__(self, "prior", as_prior(self.prior))
        _check_number("Rates", "rate", self.rate)
        if not 0 < self.rate < 1:
            raise ValueError(f"`rate` of Rates must lie between 0 and 1; got {self.rate!r}.")
        highest = as_prior(self.prior).max_log_alpha
        if highest is not None and self.log_alpha > highest:
            raise ValueError(
                f"`rate` of Rates must be at most {1 / (1 + math.exp(-highest))} with {self.prior!r}, "
                f"which is valid up to log_alpha = {highest}; got {self.rate!r}."
            )
        _check_filter("Rates", "filter_fn", self.filter_fn)

    @property
    def log_alpha(self) -> float:
        """The initial log alpha, ``log(p / (1 - p))``."""
        return math.log(self.rate) - math.log1p(-self.rate)


Mode: TypeAlias = Weights | Units | Rates
"""Any of the three modes."""


def without_filters(mode: Mode) -> Mode:
    """The mode as a layer stores it, without the filters: they have been applied, and a lambda cannot be pickled.

    Example:
        >>> without_filters(Rates(filter_fn=lambda module, name: True)).filter_fn is None
        True
    """
    if isinstance(mode, Units):
        return replace(mode, filter_fn=None, outputs=None)
    return replace(mode, filter_fn=None)
