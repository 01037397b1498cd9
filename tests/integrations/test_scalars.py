import re

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
    assert found["dead_share_by_layer/0"] == 0
    assert found["dead_share_by_layer/2"] == 0.5
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


def oddly_named():
    """Layers whose names no tracker accepts, two of which would become the same; and one that is like a folder."""
    model = nn.ModuleDict({name: nn.Linear(2, 2) for name in ("a b(c)", "a_b_c_", "a", "a/b", "ä@1")})
    vbdrop.convert_(model, vbdrop.Weights())
    return model


@pytest.mark.parametrize("build", [oddly_named, lambda: converted(vbdrop.Weights(), vbdrop.Units())])
def test_trackers_accept_the_names(build):
    model = build()
    found = vbdrop.scalars(model, prefix="vbdrop/")
    assert len(found) == 2 + 2 * len(vbdrop.rates(model))
    assert all(re.fullmatch(r"[-./\w]+", name) for name in found)
    folders = {name.rpartition("/")[0] for name in found}
    assert folders == {"vbdrop", "vbdrop/rate", "vbdrop/dead_share_by_layer"}
    assert folders.isdisjoint(found)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own, of the database
@pytest.mark.parametrize("store", ["sqlite:///{}/store.db", "file:{}/store"])
def test_mlflow_gives_all_of_them_back(tmp_path, store, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="NOT TESTED: there is no mlflow here")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    expected = vbdrop.scalars(oddly_named(), prefix="vbdrop/")
    mlflow.set_tracking_uri(store.format(tmp_path))
    with mlflow.start_run() as run:
        mlflow.log_metrics(expected, step=1)
    assert mlflow.tracking.MlflowClient().get_run(run.info.run_id).data.metrics == expected


def test_tensorboard_gives_all_of_them_back(tmp_path):
    pytest.importorskip("tensorboard", reason="NOT TESTED: there is no tensorboard here")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    expected = vbdrop.scalars(oddly_named(), prefix="vbdrop/")
    with SummaryWriter(str(tmp_path)) as writer:
        for name, value in expected.items():
            writer.add_scalar(name, value, 1)
    written = EventAccumulator(str(tmp_path)).Reload()
    assert {name: written.Scalars(name)[0].value for name in written.Tags()["scalars"]} == pytest.approx(expected)


def test_no_gradient_is_left_behind_and_no_noise_drawn():
    model = converted(vbdrop.Weights())
    state = torch.get_rng_state()
    vbdrop.scalars(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_is_no_elbo_is_refused():
    with pytest.raises(TypeError, match=r"`elbo` must be a vbdrop\.ELBO or None; got Linear"):
        vbdrop.scalars(converted(vbdrop.Weights()), nn.Linear(1, 1))
