import pytest
from torch import nn

from vbdrop.analysis.layer_shapes import SHAPES, beside, owner

MODULES = [
    *(nn.Linear(3, 2), nn.PReLU(2), nn.Embedding(5, 2), nn.BatchNorm1d(2), nn.SyncBatchNorm(2)),
    *(kind(3, 2, 1) for kind in (nn.Conv1d, nn.Conv3d, nn.ConvTranspose2d)),
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: type(module).__name__)
def test_the_attributes_hold_the_numbers_of_units(module):
    shape = SHAPES[type(module)]
    assert getattr(module, shape.outputs) == 2
    assert shape.inputs is None or getattr(module, shape.inputs) == 3


def test_names_of_the_root_and_of_submodules():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
    assert model.get_submodule(owner("0.0.weight")) is model[0][0]
    assert model.get_parameter(beside("0.0.weight", "bias")) is model[0][0].bias
    assert (owner("weight"), beside("weight", "bias")) == ("", "bias")
