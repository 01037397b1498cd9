import pytest
import torch
from torch import nn

from vbdrop.models import LeNet5


def test_lenet5_layers_leave_20_50_800_500_features():
    net = LeNet5()
    sizes = [(m.weight.shape[0], m.weight[0].numel()) for m in (net.conv1, net.conv2, net.fc1, net.fc2)]
    assert sizes == [(20, 25), (50, 500), (500, 800), (10, 500)]


@pytest.mark.parametrize("name", ["conv1", "conv2", "fc1"])
def test_lenet5_has_a_relu_after_each_layer_but_the_last(name):
    net = LeNet5()
    layer = net.get_submodule(name)
    nn.init.constant_(layer.bias, -100.0)  # all of its outputs are negative: only a ReLU hides the image
    first, second = net(torch.stack([torch.zeros(1, 28, 28), torch.ones(1, 28, 28)]))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_lenet5_pools_by_the_maximum():
    net = LeNet5()
    nn.init.zeros_(net.conv1.weight)
    nn.init.zeros_(net.conv1.bias)
    with torch.no_grad():
        net.conv1.weight[:, :, 0, 0] = 1.0  # conv1 copies the image's upper left 24 x 24 pixels
    image = torch.zeros(1, 1, 28, 28)
    image[..., ::2, ::2] = 1.0  # one bright pixel in each 2 x 2 window: its maximum is that of an all-bright image
    torch.testing.assert_close(net(image), net(torch.ones(1, 1, 28, 28)), rtol=0, atol=0)
