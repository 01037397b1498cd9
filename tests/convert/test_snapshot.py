import torch
from torch import nn

from vbdrop.convert.snapshot import Snapshot


def test_what_was_added_goes_and_what_was_there_stays():
    class Changed(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.note = "mine"
    layer, weight = model[0], model[0].weight
    before = Snapshot(model)
    layer.__class__ = Changed
    layer.extra = nn.Parameter(torch.ones(2))
    layer.gate = nn.PReLU()
    layer.noise = object()
    model.added = nn.Linear(1, 1)
    before.restore_()
    assert type(layer) is nn.Linear
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
    assert not hasattr(layer, "noise")
    assert model.note == "mine"
    assert model[0] is layer
    assert layer.weight is weight


def test_nothing_happens_to_a_model_that_did_not_change():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    contents = [list(module.__dict__) for module in model.modules()]
    Snapshot(model).restore_()
    assert [list(module.__dict__) for module in model.modules()] == contents
