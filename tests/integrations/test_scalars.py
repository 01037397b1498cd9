import pytest
import torch
import torch.nn.functional as F
from torch import nn

import vbdrop


def converted(*modes):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    vbdrop.convert_(model, *modes)
    return model


def test_it_is_a_flat_dict_of_numbers():
    model = converted(vbdrop.Weights(), vbdrop.Units())
    elbo = vbdrop.ELBO(model, n_train=100, kl_weight=2.0, warmup=vbdrop.Warmup(ramp=4))
    elbo.epoch = 1
    loss = elbo(F.cross_entropy(model(torch.randn(5, 4)), torch.tensor([0, 1, 0, 1, 0])))
    found = vbdrop.scalars(model, elbo)
    assert {type(value) for value in found.values()} == {float}
    assert found["kl_weight"] == 0.5
    assert found["loss"] == pytest.approx(loss.item())
    assert found["nll"] + 0.5 * found["kl"] / 100 == pytest.approx(found["loss"], rel=1e-5)
    assert found["kl"] == pytest.approx(vbdrop.kl(model).item())


def test_the_dead_are_counted_by_layer_and_in_all():
    model = converted(vbdrop.Weights())
    with torch.no_grad():
        model[2].log_sigma2[0] = 20.0
    found = vbdrop.scalars(model)
    assert found["dead_share/0"] == 0
    assert found["dead_share/2"] == 0.5
    assert found["dead_share"] == pytest.approx(3 / 18)
    assert found["rate/2"] > found["rate/0"]


def test_with_attach_there_is_no_likelihood():
    model = converted(vbdrop.Weights())
    optimizer = torch.optim.SGD(vbdrop.param_groups(model, lr=0.1))
    elbo = vbdrop.ELBO(model, n_train=100)
    elbo.attach(optimizer)
    assert "kl_weight" not in vbdrop.scalars(model, elbo)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert {"nll", "loss"}.isdisjoint(vbdrop.scalars(model, elbo))
    assert vbdrop.scalars(model, elbo)["kl_weight"] == 1.0


def test_every_key_has_the_prefix():
    assert all(key.startswith("train/") for key in vbdrop.scalars(converted(vbdrop.Rates()), prefix="train/"))


def test_no_gradient_is_left_behind_and_no_noise_drawn():
    model = converted(vbdrop.Weights())
    state = torch.get_rng_state()
    vbdrop.scalars(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_is_no_elbo_is_refused():
    with pytest.raises(TypeError, match=r"`elbo` must be a vbdrop\.ELBO or None; got Linear"):
        vbdrop.scalars(converted(vbdrop.Weights()), nn.Linear(1, 1))
