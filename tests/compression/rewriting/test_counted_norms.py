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


class ImageNorm(nn.LayerNorm):
    """Over the channels of images; convolutions after it run on its memory order."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@torch.no_grad()
def test_images_leave_a_norm_in_the_memory_order_that_it_had():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), ImageNorm(8), nn.ReLU(), nn.Conv2d(8, 2, 1)).eval()
    for parameter in model[0].parameters():
        parameter[2:6] = 0
    model[3].weight[:, 2:6] = 0
    x, orders = torch.randn(2, 3, 6, 6), []
    small = vbdrop.compress(model, x, rewrite_gain=0.0)
    assert small.plan.program is not None
    for conv in (model[3], small.model.get_submodule("3")):
        conv.register_forward_pre_hook(lambda _, inputs: orders.append(inputs[0].stride()[1]))
    torch.testing.assert_close(small.model(x), model(x))
    assert orders == [1, 1]
