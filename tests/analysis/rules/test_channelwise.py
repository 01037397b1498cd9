import torch
from tests.compression.nets import Branches, randomise_, removed
from torch import nn

IMAGES = torch.randn(2, 3, 6, 6).double()


def between(layer: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 6, 3), layer, nn.ReLU(), nn.Conv2d(6, 2, 1))


@torch.no_grad()
def test_layers_with_parameters_for_each_channel_follow_them():
    layers = [nn.BatchNorm2d(6), nn.BatchNorm2d(6, affine=False), nn.PReLU(6), nn.PReLU(1)]
    model = randomise_(Branches(map(between, layers)))
    for branch in model:
        branch[0].weight[:2] = 0
        branch[3].weight[:, 5] = 0
    small, _, left = removed(model, IMAGES)
    assert left == {}
    assert [branch[0].out_channels for branch in small] == [3, 3, 3, 3]
    norm, bare, slopes, slope = (branch[1] for branch in small)
    assert norm.num_features == len(norm.weight) == len(norm.bias) == len(norm.running_var) == 3
    assert bare.num_features == len(bare.running_mean) == 3
    assert slopes.num_parameters == len(slopes.weight) == 3
    assert slope.num_parameters == len(slope.weight) == 1


@torch.no_grad()
def test_a_scale_of_zero_makes_a_constant():
    model = randomise_(between(nn.BatchNorm2d(6)))
    model[1].weight[:4] = 0
    assert removed(model, IMAGES).model[0].out_channels == 2


@torch.no_grad()
def test_statistics_of_the_batch_and_norms_of_the_input_keep_their_channels():
    on_input = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 1))
    model = randomise_(Branches([between(nn.BatchNorm2d(6, track_running_stats=False)), on_input]))
    model[0][0].weight[:4] = 0
    on_input[0].weight[0] = 0
    x = IMAGES.repeat(2, 1, 1, 1)  # twice the same, so that a batch of twice as many has the same statistics
    small, _, left = removed(model, x)
    assert small.get_submodule("0.0").out_channels == 6
    assert small.get_submodule("1.0").num_features == 3
    assert left != {}


def test_a_batch_norm_with_an_activation_is_cut_like_any_other():
    class Activated(nn.BatchNorm2d):
        def forward(self, x):
            return torch.relu(super().forward(x))

    model = randomise_(nn.Sequential(nn.Conv2d(3, 6, 1), Activated(6), nn.Conv2d(6, 2, 1)))
    with torch.no_grad():
        model[2].weight[:, :2] = 0
    removal = removed(model, torch.randn(2, 3, 4, 4).double())
    assert type(removal.model[1]) is Activated
    assert removal.model[1].num_features == removal.model[0].out_channels == 4
    assert removal.left == {}


@torch.no_grad()
def test_instance_and_group_norms_lose_whole_groups():
    cases = [
        (nn.InstanceNorm2d(8, affine=True), [0, 1, 2], 5),
        (nn.InstanceNorm2d(8), [0, 1, 2], 5),
        (nn.GroupNorm(8, 8), [0, 1, 2], 5),
        (nn.GroupNorm(4, 8), [0, 1, 2], 6),
        (nn.GroupNorm(4, 8, affine=False), [0, 1, 2], 6),
        (nn.GroupNorm(1, 8), [0, 1, 2], 8),
    ]
    for norm, dead, left in cases:
        model = randomise_(nn.Sequential(nn.Conv2d(3, 8, 1), norm, nn.ReLU(), nn.Conv2d(8, 2, 1)))
        model[3].weight[:, dead] = 0
        removal = removed(model, torch.randn(2, 3, 4, 4).double())
        assert removal.model.get_submodule("0").out_channels == left
        if isinstance(norm, nn.GroupNorm) and left < 8:
            assert removal.model.get_submodule("1").num_groups == norm.num_groups * left // 8
    assert removal.left == {}  # with one group, the others are normalised by these, too
