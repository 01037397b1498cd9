import torch
from torch import nn

from vbdrop.models import VGG


def test_convolutions_are_those_of_the_paper():
    with torch.device("meta"):
        net = VGG()
    convolutions = [m for m in net.features if isinstance(m, nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [64] * 2 + [128] * 2 + [256] * 3 + [512] * 6
    assert {(m.kernel_size, m.padding, m.stride) for m in convolutions} == {((3, 3), (1, 1), (1, 1))}


def test_every_layer_but_the_last_is_normalised_with_the_published_epsilon_then_rectified():
    net = VGG(width=0.0625)
    layers = [*net.features, *net.classifier]
    for layer, norm, activation in zip(layers[:-1], layers[1:], layers[2:], strict=False):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            assert isinstance(norm, nn.BatchNorm2d | nn.BatchNorm1d)
            assert norm.eps == 1e-3
            assert isinstance(activation, nn.ReLU)


def test_width_scales_every_layer_but_the_classes():
    net = VGG(width=1.5)
    assert net.features[0].out_channels == 96
    assert net.classifier[0].weight.shape == (768, 768)
    assert net.classifier[-1].weight.shape == (10, 768)
