"""What is dead has neither mean nor variance, and nothing brings it back."""

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.methods.refining import NO_VARIANCE, freeze_variances_, keep_dead_, remove_dead_

both_modes = pytest.mark.parametrize("mode", [vbdrop.Weights(), vbdrop.Units()], ids=["weights", "units"])


def half_dead(mode):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5, bias=False))
    vbdrop.convert_(model, mode)
    (entry,) = (entry for module in model.modules() if hasattr(module, "variational") for entry in module.variational())
    with torch.no_grad():
        entry.log_sigma2[..., ::2] = 9.0
    return model, entry


@both_modes
def test_the_dead_add_no_noise_and_the_survivors_keep_theirs(mode):
    model, entry = half_dead(mode)
    dead = torch.eye(6)[::2]
    assert model(dead).std() > 1
    remove_dead_(model)
    assert model(dead).abs().max() < 1e-14  # the sampled variance has a floor
    alive = torch.eye(6)[1::2]
    assert not torch.equal(model(alive), model(alive))
    assert (entry.log_sigma2[..., 1::2] < -5).all()
    assert (entry.log_sigma2[..., 1::2] > NO_VARIANCE).all()


@both_modes
def test_the_dead_are_dead_at_every_threshold_and_cost_nothing(mode):
    model, entry = half_dead(mode)
    before = entry.dead()
    remove_dead_(model)
    for threshold in (None, 5.0, 50.0):
        assert torch.equal(entry.dead(threshold), before)
    total = vbdrop.kl(model).item()
    assert total == pytest.approx(entry.prior.kl(entry.mean, entry.log_sigma2)[~before].sum().item(), rel=1e-5)


@both_modes
def test_what_an_optimizer_does_to_the_dead_is_undone(mode):
    model, entry = half_dead(mode)
    dead = entry.dead()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(3, 6)).square().sum().backward()
    optimizer.step()  # the moments of the dead are not zero from now on
    remove_dead_(model)
    freeze_variances_(model)
    before, kept = entry.log_sigma2.detach().clone(), entry.mean.detach().clone()
    optimizer.zero_grad()
    model(torch.ones(3, 6)).square().sum().backward()
    optimizer.step()
    assert (entry.mean[dead] != 0).any()
    keep_dead_(model)
    assert (entry.mean[dead] == 0).all()
    assert (entry.mean != kept)[~dead].all()
    assert torch.equal(entry.log_sigma2, before)
