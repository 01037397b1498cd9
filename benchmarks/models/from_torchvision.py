"""The entries from torchvision: classification, segmentation and video."""

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.entry import SIZE, Entry, images
from benchmarks.models.torchvision_import import import_torchvision

CLASSES = 10

CLASSIFIERS: dict[str, int] = {
    "alexnet": SIZE,
    "squeezenet1_1": SIZE,
    "resnet18": SIZE,
    "googlenet": SIZE,
    "shufflenet_v2_x0_5": SIZE,
    "mnasnet0_5": SIZE,
    "mobilenet_v2": SIZE,
    "mobilenet_v3_small": SIZE,
    "efficientnet_b0": SIZE,
    "regnet_y_400mf": SIZE,
    "densenet121": SIZE,
    "convnext_tiny": SIZE,
    "swin_t": SIZE,
    "swin_v2_t": SIZE,
}
"""Name -> the size of the images."""

SEGMENTATION = ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large")
PICTURES, FILM_SIZE = 8, 32

VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18")


def clip() -> tuple[Tensor, ...]:
    """Random films."""
    return (torch.randn(2, 3, PICTURES, FILM_SIZE, FILM_SIZE),)


def _made(kind: str, name: str, **options: Any) -> nn.Module:  # noqa: ANN401 -- options of any kind
    if kind == "segmentation":
        options |= {"weights_backbone": None}
    models = import_torchvision().models
    family = {"classifier": models, "segmentation": models.segmentation, "video": models.video}[kind]
    return getattr(family, name)(weights=None, num_classes=CLASSES, **options)


def _classifier(name: str, size: int) -> Entry:
    options = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    return Entry("torchvision", name, lambda: _made("classifier", name, **options), images(size), f"{size} pixels")


def _vit() -> nn.Module:
    return import_torchvision().models.VisionTransformer(SIZE, 16, 2, 4, 192, 384, num_classes=CLASSES)


ENTRIES = [
    *(_classifier(name, size) for name, size in CLASSIFIERS.items()),
    Entry("torchvision", "vit", _vit, images(), f"{SIZE} pixels, 2 layers of 192"),
    *(
        Entry("torchvision", name, lambda name=name: _made("segmentation", name), images(), f"{SIZE} pixels")
        for name in SEGMENTATION
    ),
    *(
        Entry(
            "torchvision",
            name,
            lambda name=name: _made("video", name),
            clip,
            f"{PICTURES} pictures of {FILM_SIZE} pixels",
        )
        for name in VIDEO
    ),
]
