"""What is dead has neither mean nor variance, and nothing brings it back."""

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.methods import VBDWeights
from vbdrop.methods.shared.refining import NO_VARIANCE, freeze_variances_, keep_dead_, remove_dead_
from vbdrop.train.shrinking import Shrinking

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


def test_weights_that_carry_a_merged_constant_are_not_taken_for_dead():
    """A padded convolution cannot fold the constant of a dead channel into its bias: another channel carries it."""
    torch.manual_seed(0)
    method = VBDWeights(refine=0.5, pretrain=0.0)
    layers = nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1), nn.Flatten(), nn.Linear(144, 3)
    model, x = method.build(nn.Sequential(*layers)), torch.randn(8, 1, 6, 6)
    optimizer = torch.optim.Adam(method.groups(model, 1e-3), lr=1e-3)
    shrinking = Shrinking(method, model, x)
    with torch.no_grad():
        model[0].bias.abs_().add_(0.5)
        model[0].log_sigma2[1:4] = 10.0  # three channels are constants
        model[2].log_sigma2[[0, 1, 2], [1, 2, 3]] = 10.0  # and some of the weights on them are dead
    remove_dead_(model)
    before = model.eval()(x)
    for _ in range(2):
        shrinking.check_(model, optimizer)
    assert model[2].weight.shape == (4, 4, 3, 3)
    keep_dead_(model)
    torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-6)
