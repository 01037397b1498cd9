"""Masks are buffers of plain layers, and what they hide is exactly zero."""

import torch
from torch import nn

from vbdrop.methods.shared.masks import add_buffers_, add_masks_, apply_masks_, keep_largest, mask_of, remove_buffers_


def test_a_mask_zeroes_its_weights_and_leaves_the_rest():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2))
    before = [layer.weight.detach().clone() for layer in (model[0], model[2])]
    add_masks_(model)
    mask_of(model[0])[1] = False
    mask_of(model[2])[:, ::2] = False
    apply_masks_(model)
    for layer, weight in zip((model[0], model[2]), before, strict=True):
        assert torch.equal(layer.weight, torch.where(mask_of(layer), weight, 0.0))
        assert not layer.weight[~mask_of(layer)].any()


def test_masks_travel_with_the_state_dict_and_leave_no_trace():
    model, other = nn.Sequential(nn.Linear(4, 2)), nn.Sequential(nn.Linear(4, 2))
    keys = list(model.state_dict())
    add_masks_(model)
    add_masks_(other)
    mask_of(model[0])[0] = False
    other.load_state_dict(model.state_dict())
    assert not mask_of(other[0])[0].any()
    assert list(remove_buffers_(model, "mask").state_dict()) == keys
    assert not hasattr(model[0], "mask")


def test_a_buffer_is_a_copy_for_each_layer():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    first, second = add_buffers_(model, dense=None, limit=torch.zeros(()))
    first.limit.fill_(1.0)
    first.dense.zero_()
    assert second.limit == 0
    assert first.weight.any()


def test_as_many_are_kept_as_asked_also_where_all_are_equal():
    assert int(keep_largest(torch.ones(10, 10), 7).sum()) == 7
    scores = torch.randn(20, 5)
    kept = keep_largest(scores, 30)
    assert int(kept.sum()) == 30
    assert scores[kept].min() > scores[~kept].max()
