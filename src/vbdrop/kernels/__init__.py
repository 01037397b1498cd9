"""The compiled kernels: how they are built, kept and loaded, and why they are not in use where they are not."""

from vbdrop.kernels.building import build, source_digest
from vbdrop.kernels.compiler import compiler_version, find_compiler
from vbdrop.kernels.library import Kernels, in_use, kernels, library
from vbdrop.kernels.signatures import load

__all__ = [
    "Kernels",
    "build",
    "compiler_version",
    "find_compiler",
    "in_use",
    "kernels",
    "library",
    "load",
    "source_digest",
]
