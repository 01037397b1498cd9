import torch
from tests.compression.nets import difference, randomise_, removed
from torch import nn

import vbdrop


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


@torch.no_grad()
def test_a_norm_of_large_numbers_in_half_precision_does_not_overflow():
    for norm in (nn.LayerNorm(12), nn.GroupNorm(1, 12)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 12), norm, nn.Linear(12, 2)).eval()
        for parameter in model[0].parameters():
            parameter[:8] = 0
        model[2].weight[:, :8] = 0
        x = torch.randn(4, 6)
        small = vbdrop.compress(model.half(), x.half(), rewrite_gain=0.0)
        assert small.plan.program is not None
        assert small.model.get_submodule("0").out_features == 4
        torch.testing.assert_close(small.model(2000 * x.half()), model(2000 * x.half()), rtol=0, atol=1e-2)
        torch.testing.assert_close(small.model.float()(x), model.float()(x))
