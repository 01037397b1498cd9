import torch
from torch import nn

from vbdrop.models import KingmaCNN


def test_softplus_follows_every_layer_but_the_last():
    torch.manual_seed(0)
    net = KingmaCNN(scale=0.25).double()
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    h = x
    for conv in (net.conv1, net.conv2):
        h = nn.functional.conv2d(h, conv.weight, conv.bias, stride=2).exp().log1p()
    h = h.reshape(2, -1)
    for layer in (net.fc1, net.fc2):
        h = (h @ layer.weight.T + layer.bias).exp().log1p()
    torch.testing.assert_close(net(x), h @ net.fc3.weight.T + net.fc3.bias)


def test_the_published_scales():
    widths = {
        k: (n.conv1.out_channels, n.conv2.out_channels, n.fc2.out_features) for k in (1, 1.5, 2) for n in [KingmaCNN(k)]
    }
    assert widths == {1: (32, 64, 128), 1.5: (48, 96, 192), 2: (64, 128, 256)}
