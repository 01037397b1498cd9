"""torchvision beside a build of torch that its compiled operators do not fit."""

from types import ModuleType

import torch

OPERATORS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
"""Operators that torchvision registers a fake version of as it is imported; no model of the table uses them."""

_library: list[torch.library.Library] = []


def import_torchvision() -> ModuleType:
    """The package, with those of its operators declared that it cannot load."""
    if not _library:
        library = torch.library.Library("torchvision", "FRAGMENT")
        _library.append(library)
        for name, schema in OPERATORS.items():
            if not hasattr(torch.ops.torchvision, name):
                library.define(f"{name}{schema}")
    import torchvision as package

    return package
