"""The entries from timm: one or two members of each of its families of image networks."""

from typing import Any

from torch import nn

from benchmarks.models.entry import SIZE, Entry, images
from benchmarks.models.shortening import shorten_

CLASSES = 10

SHALLOW_STAGES = {"depths": (1, 1, 1, 1)}
SHALLOW_BLOCKS = {"depth": 2}

MODELS: dict[str, dict[str, Any]] = {
    # residual networks and their relatives
    "resnet18": {"layers": (1, 1, 1, 1)},
    "resnet50": {"layers": (1, 1, 1, 1)},
    "resnetv2_50": {"layers": (1, 1, 1, 1)},
    "resnetv2_50x1_bit": {},
    "resnext50_32x4d": {"layers": (1, 1, 1, 1)},
    "seresnet50": {"layers": (1, 1, 1, 1)},
    "ecaresnet50t": {"layers": (1, 1, 1, 1)},
    "skresnet18": {"layers": (1, 1, 1, 1)},
    "res2net50_26w_4s": {"layers": (1, 1, 1, 1)},
    "resnest14d": {},
    "regnetx_002": {},
    "regnety_002": {},
    "nf_resnet50": {},
    "dpn48b": {},
    "densenet121": {"block_config": (2, 2, 2, 2)},
    "dla34": {},
    "hrnet_w18_small": {"short": False},
    "ese_vovnet19b_dw": {},
    "vgg11_bn": {"mlp_ratio": 0.0625},
    "repvgg_a0": {},
    "inception_v3": {"size": 96},
    "xception41": {},
    "hgnetv2_b0": {},
    # for small machines
    "mobilenetv2_050": {},
    "mobilenetv3_small_050": {},
    "mobilenetv4_conv_small_035": {},
    "efficientnet_b0": {},
    "mixnet_s": {},
    "lcnet_050": {},
    "ghostnet_050": {},
    "rexnet_100": {},
    "mobileone_s0": {},
    "starnet_s050": {},
    # convolutions in the manner of transformers
    "convnext_atto": SHALLOW_STAGES,
    "convnextv2_atto": SHALLOW_STAGES,
    "convmixer_768_32": {},
    "inception_next_atto": SHALLOW_STAGES,
    "poolformer_s12": {"layers": (1, 1, 1, 1)},
    "convformer_s18": {},
    "focalnet_tiny_srf": {},
    "mambaout_femto": SHALLOW_STAGES,
    "fastvit_t8": {},
    "repvit_m0_9": {"depth": (1, 1, 2, 1)},
    # convolutions and attention
    "botnet26t_256": {"size": 256},
    "visformer_tiny": {"size": 224},
    "edgenext_xx_small": {},
    "efficientformer_l1": {"size": 224},
    "efficientvit_b0": {},
    "efficientvit_m0": {"size": 224},
    "levit_128s": {"size": 224},
    "mobilevit_xxs": {},
    "mobilevitv2_050": {},
    "coatnet_pico_rw_224": {"size": 224},
    "caformer_s18": {},
    # transformers
    "vit_tiny_patch16_224": {"img_size": SIZE, **SHALLOW_BLOCKS},
    "deit3_small_patch16_224": {"img_size": SIZE, **SHALLOW_BLOCKS},
    "deit_tiny_distilled_patch16_224": {"img_size": SIZE, **SHALLOW_BLOCKS},
    "beit_base_patch16_224": {"img_size": SIZE, "embed_dim": 192, "num_heads": 4, **SHALLOW_BLOCKS},
    "eva02_tiny_patch14_224": {"img_size": 56, "size": 56, **SHALLOW_BLOCKS},
    "cait_xxs24_224": {"img_size": SIZE, **SHALLOW_BLOCKS},
    "xcit_nano_12_p16_224": {"img_size": SIZE, **SHALLOW_BLOCKS},
    "pit_ti_224": {"img_size": SIZE},
    "pvt_v2_b0": SHALLOW_STAGES,
    "twins_svt_small": {"img_size": SIZE, "depths": (2, 2, 2, 2), "embed_dims": (32, 64, 128, 256)},
    "swin_tiny_patch4_window7_224": {"img_size": 112, "size": 112, "depths": (2, 1, 1, 1), "embed_dim": 48},
    "swinv2_tiny_window8_256": {"img_size": 128, "size": 128, "depths": (2, 1, 1, 1), "embed_dim": 48},
    "crossvit_tiny_240": {"size": 240},
    "davit_tiny": {"embed_dims": (48, 96, 192, 384), **SHALLOW_STAGES},
    "mixer_s32_224": {"img_size": SIZE},
    "resmlp_12_224": {"img_size": SIZE},
    "gmlp_ti16_224": {"img_size": SIZE},
}
"""Name -> the arguments to build it, the size of its images if it is not the usual one, and whether it is shortened."""

DEPTHS = ("layers", "depths", "depth", "block_config")
"""The options that set the number of blocks; if none is given, equal consecutive blocks are left out."""


WIDE: dict[str, dict[str, Any]] = {
    "resnet50": {"size": 224, "short": False},
    "convnext_tiny": {"size": 224, "depths": (1, 1, 3, 1)},
    "vit_base_patch16_224": {"size": 224, "depth": 2},
}
"""Networks of the width used in practice, on images of the usual size, where arithmetic dominates the latency."""


def _entry(name: str, options: dict[str, Any], suffix: str = "") -> Entry:
    options = dict(options)
    size = options.pop("size", SIZE)
    short = options.pop("short", not any(name in options for name in DEPTHS))

    def make() -> nn.Module:
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)
        return shorten_(model) if short else model

    small = {key: value for key, value in options.items() if key != "img_size"}
    note = ", ".join([f"{size} pixels", *(f"{key} {value}" for key, value in small.items())])
    return Entry("timm", f"{name}{suffix}", make, images(size), note)


ENTRIES = [_entry(name, options) for name, options in MODELS.items()]
ENTRIES += [_entry(name, options, " of full width") for name, options in WIDE.items()]
