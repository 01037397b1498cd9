"""Imports what every entry needs, once for all processes."""

import contextlib
import importlib

from benchmarks.models.torchvision_import import import_torchvision

NEEDED = ("torch._dynamo", "torch.export", "benchmarks.models.trial", "timm", "transformers")

with contextlib.suppress(ImportError):  # what is missing is said by the entries that need it
    import_torchvision()
    for name in NEEDED:
        importlib.import_module(name)
