"""The methods of the tables, one per file; `METHODS` lists them.

Each keeps its state in the model's parameters and buffers. `finish` works in place: it returns the model itself, or the
network inside it, as a plain network that computes what the trained model computes in eval mode. Pass it a deep copy if
training is to continue.
"""

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
from vbdrop.methods.table import METHODS, method_named
from vbdrop.methods.variational_dropout import VariationalDropout
from vbdrop.methods.vbd_gates import VBDGates
from vbdrop.methods.vbd_rates import VBDRates
from vbdrop.methods.vbd_weights import VBDWeights

__all__ = [
    "METHODS",
    "AdversarialDropout",
    "BernoulliDropout",
    "ConcreteDropout",
    "GaussianDropout",
    "GaussianNoise",
    "GradualPruning",
    "GroupLasso",
    "HardConcrete",
    "MagnitudePruning",
    "NetworkSurgery",
    "Plain",
    "RigL",
    "SoftWeightSharing",
    "SparseVD",
    "StructuredBayesianPruning",
    "VBDGates",
    "VBDRates",
    "VBDWeights",
    "VariationalDropout",
    "method_named",
]
