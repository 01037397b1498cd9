"""Imports what every entry needs, once for all processes."""

import contextlib
import importlib

from benchmarks.models.torchvision_import import import_torchvision

NEEDED = ("torch._dynamo", "torch.export", "benchmarks.models.trial", "timm", "transformers")

with contextlib.suppress(ImportError):  # entries that need a missing package report it
    import_torchvision()
    for name in NEEDED:
        importlib.import_module(name)
