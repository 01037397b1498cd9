"""The entries from torchvision: classification, segmentation and video."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.entry import SIZE, Entry, images
from benchmarks.models.shortening import shorten_
from benchmarks.models.torchvision_import import import_torchvision

CLASSES = 10

CLASSIFIERS = (
    *("squeezenet1_1", "googlenet", "shufflenet_v2_x0_5", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small"),
    *("efficientnet_b0", "regnet_y_400mf"),
)
SEGMENTATION = ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large")

LAYERS = [1, 1, 1, 1]
PICTURES, FILM_SIZE = 8, 32

VIDEO = {
    "r3d_18": (["Conv3DSimple"] * 4, "BasicStem"),
    "mc3_18": (["Conv3DSimple"] + ["Conv3DNoTemporal"] * 3, "BasicStem"),
    "r2plus1d_18": (["Conv2Plus1D"] * 4, "R2Plus1dStem"),
}
"""Name -> the convolutions of its stages, and its stem."""


def clip() -> tuple[Tensor, ...]:
    """Random video clips."""
    return (torch.randn(2, 3, PICTURES, FILM_SIZE, FILM_SIZE),)


def _made(name: str) -> nn.Module:
    models, options = import_torchvision().models, dict[str, Any]()
    if name in SEGMENTATION:
        models, options = models.segmentation, {"weights_backbone": None}
    if name == "googlenet":
        options = {"init_weights": False, "aux_logits": False}
    return shorten_(getattr(models, name)(weights=None, num_classes=CLASSES, **options))


def _alexnet() -> nn.Module:
    model = import_torchvision().models.alexnet(num_classes=CLASSES)
    model.classifier[1], model.classifier[4] = nn.Linear(9216, 256), nn.Linear(256, 256)
    model.classifier[6] = nn.Linear(256, CLASSES)
    return model  # type: ignore[no-any-return]


def _resnet() -> nn.Module:
    resnet = import_torchvision().models.resnet
    return resnet.ResNet(resnet.BasicBlock, LAYERS, num_classes=CLASSES)  # type: ignore[no-any-return]


def _densenet() -> nn.Module:
    models = import_torchvision().models
    return models.DenseNet(32, (2, 2, 2, 2), 64, num_classes=CLASSES)  # type: ignore[no-any-return]


def _convnext() -> nn.Module:
    convnext = import_torchvision().models.convnext
    stages = [convnext.CNBlockConfig(*sizes, 2) for sizes in ((32, 64), (64, 96), (96, None))]
    return convnext.ConvNeXt(stages, num_classes=CLASSES)  # type: ignore[no-any-return]


def _swin(version: int) -> nn.Module:
    swin = import_torchvision().models.swin_transformer
    parts = {"block": swin.SwinTransformerBlockV2, "downsample_layer": swin.PatchMergingV2} if version == 2 else {}
    return swin.SwinTransformer(  # type: ignore[no-any-return]
        [4, 4], 48, [2, 2], [3, 6], [4, 4], num_classes=CLASSES, **parts
    )


def _vit() -> nn.Module:
    models = import_torchvision().models
    return models.VisionTransformer(SIZE, 16, 2, 4, 192, 384, num_classes=CLASSES)  # type: ignore[no-any-return]


def _video(name: str) -> nn.Module:
    resnet, (convolutions, stem) = import_torchvision().models.video.resnet, VIDEO[name]
    makers = [getattr(resnet, kind) for kind in convolutions]
    return resnet.VideoResNet(  # type: ignore[no-any-return]
        resnet.BasicBlock, makers, LAYERS, getattr(resnet, stem), num_classes=CLASSES
    )


BUILT: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "alexnet": (_alexnet, "a classifier of 256 units"),
    "resnet18": (_resnet, "layers 1, 1, 1, 1"),
    "densenet121": (_densenet, "blocks of 2, 2, 2, 2 layers"),
    "convnext_tiny": (_convnext, "3 stages of 32, 64 and 96 channels"),
    "swin_t": (lambda: _swin(1), "2 stages of 48 and 96 channels"),
    "swin_v2_t": (lambda: _swin(2), "2 stages of 48 and 96 channels"),
    "vit": (_vit, "2 layers of 192"),
}
"""Name -> a function that builds a smaller version, and what was made smaller."""

ENTRIES = [
    *(Entry("torchvision", name, make, images(), f"{SIZE} pixels, {note}") for name, (make, note) in BUILT.items()),
    *(
        Entry("torchvision", name, lambda name=name: _made(name), images(), f"{SIZE} pixels")
        for name in (*CLASSIFIERS, *SEGMENTATION)
    ),
    *(
        Entry(
            "torchvision",
            name,
            lambda name=name: _video(name),
            clip,
            f"{PICTURES} pictures of {FILM_SIZE} pixels, layers 1, 1, 1, 1",
        )
        for name in VIDEO
    ),
]
