import torch
from torch import nn

import vbdrop
from vbdrop.compression.masking import masked_copy


def test_the_copy_is_plain_in_eval_mode_and_the_model_stays():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    vbdrop.convert_(model, vbdrop.Weights())
    with torch.no_grad():
        model[0].log_sigma2[0] = 20
    kind = type(model[0])
    plain = masked_copy(model, None)
    assert type(plain[0]) is nn.Linear
    assert not plain.training
    assert not plain[0].weight[0].any()
    assert plain[0].weight[1:].all()
    assert type(model[0]) is kind
    assert model.training
    assert model[1].training
    assert model[0].weight.all()
