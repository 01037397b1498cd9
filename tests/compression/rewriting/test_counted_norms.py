import torch
from tests.compression.nets import difference, randomise_, removed
from torch import nn


@torch.no_grad()
def test_a_norm_without_its_zeros_counts_all_channels_in_float32_too():
    for norm in (nn.LayerNorm(64), nn.RMSNorm(64)):
        model = randomise_(nn.Sequential(nn.Linear(5, 64), norm, nn.Linear(64, 3)))
        for parameter in model[0].parameters():
            parameter[8:] = 0
        model[0].bias[:8] += 30  # a mean that is large beside the deviation
        model[2].weight[:, 8:] = 0
        x = torch.randn(4, 5)
        small = removed(model, x.double()).model
        assert small.get_submodule("0").out_features == 8
        assert difference(model.float(), small.float(), x) < 1e-4
