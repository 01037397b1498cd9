"""The variances of the survivors stay as they are while their means train."""

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.methods.shared.refining import freeze_variances_
from vbdrop.objective import noisy_tensors


@pytest.mark.parametrize("mode", [vbdrop.Weights(), vbdrop.Units()], ids=["weights", "units"])
def test_an_optimizer_moves_the_means_alone(mode):
    model = nn.Sequential(nn.Linear(6, 5, bias=False))
    vbdrop.convert_(model, mode)
    ((_, entry),) = noisy_tensors(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(3, 6)).square().sum().backward()
    optimizer.step()  # its moments are not zero from now on
    freeze_variances_(model)
    variances, means = entry.log_sigma2.detach().clone(), entry.mean.detach().clone()
    optimizer.zero_grad()
    model(torch.ones(3, 6)).square().sum().backward()
    optimizer.step()
    assert torch.equal(entry.log_sigma2, variances)
    assert (entry.mean != means).all()
