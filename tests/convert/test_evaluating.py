import pytest
from torch import nn

from vbdrop.convert.evaluating import evaluating


@pytest.mark.parametrize("raises", [False, True])
def test_every_module_gets_its_own_mode_back(raises):
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())).train()
    model[1][0].eval()
    before = [module.training for module in model.modules()]
    assert before == [True, True, True, False, True]
    try:
        with evaluating(model) as inside:
            assert inside is model
            assert not any(module.training for module in model.modules())
            if raises:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert raises
    assert [module.training for module in model.modules()] == before
