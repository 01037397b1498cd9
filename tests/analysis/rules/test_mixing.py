import torch
from tests.compression.nets import Branches, randomise_, removed
from torch import nn

X = torch.randn(3, 4).double()


@torch.no_grad()
def test_what_reads_every_channel_keeps_them_and_is_named_if_one_is_constant():
    mixing = [nn.LayerNorm(6), nn.GroupNorm(1, 6), nn.Softmax(-1), nn.LogSoftmax(-1), nn.RMSNorm(6)]
    model = randomise_(Branches(nn.Sequential(nn.Linear(4, 6), mix, nn.Linear(6, 2)) for mix in mixing))
    assert removed(model, X).left == {}
    for branch in model:
        branch[0].weight[0] = 0
        branch[2].weight[:, :3] = 0  # what is not read behind is not selected
    removal = removed(model, X)
    found = [removal.model.get_submodule(str(i)) for i in range(len(mixing))]
    assert [branch.get_submodule("0").out_features for branch in found] == [6] * len(mixing)
    assert [branch.get_submodule("2").in_features for branch in found] == [3] * len(mixing)
    named = [reason for place, reason in removal.left.items() if "(" in place]
    assert sum("reads every channel" in reason for reason in named) == len(mixing)
