"""The compiled kernels: C sources, build, binding, and the choice between a kernel and its formula."""

from vbdrop.kernels.building import build, source_digest
from vbdrop.kernels.choice import formulas_only
from vbdrop.kernels.compiler import compiler_version, find_compiler
from vbdrop.kernels.gates import gated_linear, noisy_gates
from vbdrop.kernels.kl import KLTerm, kl_sum, kl_total
from vbdrop.kernels.library import Kernels, in_use, kernels, library, warn_if_others
from vbdrop.kernels.signatures import load
from vbdrop.kernels.weights import noisy_product, noisy_rates, noisy_weights

__all__ = [
    "KLTerm",
    "Kernels",
    "build",
    "compiler_version",
    "find_compiler",
    "formulas_only",
    "gated_linear",
    "in_use",
    "kernels",
    "kl_sum",
    "kl_total",
    "library",
    "load",
    "noisy_gates",
    "noisy_product",
    "noisy_rates",
    "noisy_weights",
    "source_digest",
    "warn_if_others",
]
