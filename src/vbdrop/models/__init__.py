"""The networks of the papers, as ordinary ``torch.nn`` modules."""

from vbdrop.models.kingma_cnn import KingmaCNN
from vbdrop.models.lenet import LeNet5, lenet_300_100, lenet_500_300
from vbdrop.models.mlp import MLP, mlp
from vbdrop.models.table import CLASSES, MODELS, Architecture, build
from vbdrop.models.vgg import VGG

__all__ = [
    "CLASSES",
    "MLP",
    "MODELS",
    "VGG",
    "Architecture",
    "KingmaCNN",
    "LeNet5",
    "build",
    "lenet_300_100",
    "lenet_500_300",
    "mlp",
]
