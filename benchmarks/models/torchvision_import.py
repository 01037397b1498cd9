"""Imports torchvision with a build of torch that its compiled operators do not support."""

from types import ModuleType

import torch

OPERATORS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
"""Operators for which torchvision registers a fake version on import; no model of the table uses them."""

_library: list[torch.library.Library] = []


def import_torchvision() -> ModuleType:
    """The package; the operators that it cannot load are declared first."""
    if not _library:
        library = torch.library.Library("torchvision", "FRAGMENT")
        _library.append(library)
        for name, schema in OPERATORS.items():
            if not hasattr(torch.ops.torchvision, name):
                library.define(f"{name}{schema}")
    import torchvision as package

    return package
