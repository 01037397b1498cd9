"""The table of priors, by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from vbdrop.priors.base import Prior
from vbdrop.priors.hierarchical import Hierarchical
from vbdrop.priors.inverse_gamma import InverseGamma
from vbdrop.priors.log_uniform import LogUniform, LogUniformCubic

PRIORS: Mapping[str, Callable[[], Prior]] = MappingProxyType(
    {
        "hierarchical": Hierarchical,
        "log_uniform": LogUniform,
        "log_uniform_cubic": LogUniformCubic,
        "inverse_gamma": InverseGamma,
    }
)


def as_prior(prior: str | Prior) -> Prior:
    """Return the prior of this name, or the prior itself.

    Raises:
        ValueError: For an unknown name; the message lists the known ones.
        TypeError: For anything else.

    Example:
        >>> as_prior("hierarchical")
        Hierarchical()
    """
    if isinstance(prior, Prior):
        return prior
    if not isinstance(prior, str):
        raise TypeError(f"`prior` must be a name or a vbdrop.priors.Prior; got {prior!r}.")
    if prior not in PRIORS:
        raise ValueError(f"`prior` must be one of {', '.join(map(repr, PRIORS))}, or a Prior; got {prior!r}.")
    return PRIORS[prior]()
