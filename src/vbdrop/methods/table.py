"""The table of methods, by their names on the command line."""

from collections.abc import Mapping
from types import MappingProxyType

from vbdrop.methods.adversarial_dropout import AdversarialDropout
from vbdrop.methods.bernoulli_dropout import BernoulliDropout
from vbdrop.methods.concrete_dropout import ConcreteDropout
from vbdrop.methods.gaussian_dropout import GaussianDropout
from vbdrop.methods.gaussian_noise import GaussianNoise
from vbdrop.methods.gradual_pruning import GradualPruning
from vbdrop.methods.group_lasso import GroupLasso
from vbdrop.methods.hard_concrete import HardConcrete
from vbdrop.methods.magnitude_pruning import MagnitudePruning
from vbdrop.methods.network_surgery import NetworkSurgery
from vbdrop.methods.plain import Plain
from vbdrop.methods.rigl import RigL
from vbdrop.methods.soft_weight_sharing import SoftWeightSharing
from vbdrop.methods.sparse_vd import SparseVD
from vbdrop.methods.structured_bayesian_pruning import StructuredBayesianPruning
from vbdrop.methods.variational_dropout import VariationalDropout
from vbdrop.methods.vbd_gates import VBDGates
from vbdrop.methods.vbd_rates import VBDRates
from vbdrop.methods.vbd_weights import VBDWeights
from vbdrop.train.method import Method

_ALL: tuple[type[Method], ...] = (
    Plain,
    BernoulliDropout,
    GaussianNoise,
    GaussianDropout,
    VariationalDropout,
    ConcreteDropout,
    AdversarialDropout,
    VBDRates,
    MagnitudePruning,
    NetworkSurgery,
    SoftWeightSharing,
    GradualPruning,
    RigL,
    SparseVD,
    VBDWeights,
    GroupLasso,
    StructuredBayesianPruning,
    HardConcrete,
    VBDGates,
)

METHODS: Mapping[str, type[Method]] = MappingProxyType({method.name: method for method in _ALL})
"""Name -> method: the regularisers, then those for fewer weights, then those for fewer units."""


def method_named(name: str) -> type[Method]:
    """Return a method of the table.

    Raises:
        ValueError: The name is not in the table; the message lists the known ones.

    Example:
        >>> method_named("rigl").paper
        'Evci et al. 2020, ICML'
    """
    if name not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}; got {name!r}.")
    return METHODS[name]
