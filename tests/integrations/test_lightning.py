import pickle

import pytest
import torch
import torch.nn.functional as F
from tests.integrations.extras import needs
from tests.integrations.network import (
    BATCH,
    EXAMPLES,
    MODES,
    STEPS,
    Examples,
    PerExampleNoise,
    by_own_loop,
    largest_difference,
    optimizer_of,
    parameters_of,
)
from torch import nn
from torch.utils.data import DataLoader

import vbdrop

needs("lightning")

import lightning.pytorch as pl  # noqa: E402

from vbdrop.integrations.lightning import VBDropCallback, restore_  # noqa: E402

pytestmark = [  # Lightning's own: with a new torch, and advice on data loaders and logging
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
]


class Module(pl.LightningModule):
    def __init__(self, net, optimizer=optimizer_of, scheduler=None):
        super().__init__()
        self.net, self.optimizer, self.scheduler = net, optimizer, scheduler

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        optimizer = self.optimizer(self.parameters())
        return optimizer if self.scheduler is None else ([optimizer], [self.scheduler(optimizer)])


def trainer(folder, *callbacks, **options):
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(default_root_dir=folder, accelerator="cpu", callbacks=[*callbacks], **{**quiet, **options})


def loader(batch=BATCH):
    return DataLoader(Examples(), batch_size=batch)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_it_trains_as_a_loop_of_ones_own(tmp_path, mode, accumulation):
    module = Module(PerExampleNoise())
    callback = VBDropCallback(MODES[mode], n_train=EXAMPLES)
    fit = trainer(tmp_path, callback, max_epochs=1, accumulate_grad_batches=accumulation)
    fit.fit(module, loader(BATCH // accumulation))
    assert fit.global_step == STEPS
    assert largest_difference(by_own_loop(MODES[mode]), parameters_of(module)) < 1e-5


def test_rates_get_no_weight_decay_and_the_scheduler_goes_on(tmp_path):
    def decaying(parameters):
        return torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.5)

    def halving(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    module = Module(PerExampleNoise(), decaying, halving)
    callback = VBDropCallback(vbdrop.Weights(), n_train=EXAMPLES, rate_lr=0.2)
    fit = trainer(tmp_path, callback, max_epochs=2)
    fit.fit(module, loader(32))
    (optimizer,) = fit.optimizers
    found = [(len(g["params"]), g["weight_decay"], g["lr"]) for g in optimizer.param_groups]
    assert found == [(4, 0.5, 0.025), (2, 0.0, 0.05)]


def test_the_warm_up_moves_and_scalars_are_logged(tmp_path):
    module = Module(PerExampleNoise())
    callback = VBDropCallback(vbdrop.Units(), n_train=EXAMPLES, kl_weight=2.0, warmup=vbdrop.Warmup(ramp=4))
    fit = trainer(tmp_path, callback, max_epochs=2)
    fit.fit(module, loader(32))
    logged = fit.callback_metrics
    assert float(logged["vbdrop/kl_weight"]) == 0.5
    assert float(logged["vbdrop/kl"]) == pytest.approx(vbdrop.kl(module).item(), rel=1e-5)
    assert 0 < float(logged["vbdrop/nll"]) < 2
    assert float(logged["vbdrop/dead_share_by_layer/net.net.2.gate"]) == 0


def with_dead_units():
    """A network of which training kills units: their gates start next to death and the KL is strong."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    vbdrop.convert_(net, vbdrop.Units(filter_fn=lambda module, name: name == "2"))
    with torch.no_grad():
        net[2].gate.log_sigma2[4:10] = 5.0
    return net


class Data(DataLoader):
    def __init__(self):
        data = Examples()
        super().__init__(torch.utils.data.TensorDataset(data.x[:, 1:], data.y), batch_size=32)


def shrinking(**options):
    return VBDropCallback(
        n_train=EXAMPLES, shrink_every=1, example_inputs=torch.zeros(2, 6), submodule="net", **options
    )


def test_a_checkpoint_of_a_shrunk_model_goes_on_as_if_nothing_had_happened(tmp_path):
    torch.manual_seed(0)
    whole, callback = Module(with_dead_units()), shrinking()
    fit = trainer(tmp_path, callback, max_epochs=2)
    fit.fit(whole, Data())
    assert whole.net[0].out_features <= 10

    torch.manual_seed(0)
    first, before = Module(with_dead_units()), shrinking()
    half = trainer(tmp_path, before, max_epochs=1)
    half.fit(first, Data())
    half.save_checkpoint(tmp_path / "half.ckpt", weights_only=False)
    noise = torch.get_rng_state()

    second, after = Module(with_dead_units()), shrinking()
    rest = trainer(tmp_path, after, max_epochs=2)
    torch.set_rng_state(noise)
    rest.fit(second, Data(), ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    assert after.elbo.calls == callback.elbo.calls == 10
    assert {n: p.shape for n, p in second.named_parameters()} == {n: p.shape for n, p in whole.named_parameters()}
    assert largest_difference(parameters_of(second), parameters_of(whole)) == 0


def test_a_plain_module_becomes_the_one_of_a_checkpoint(tmp_path):
    module = Module(with_dead_units())
    fit = trainer(tmp_path, shrinking(), max_epochs=1)
    fit.fit(module, Data())
    fit.save_checkpoint(tmp_path / "end.ckpt")
    fresh = Module(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)))
    restored = restore_(fresh, torch.load(tmp_path / "end.ckpt", weights_only=True), submodule="net")
    x = torch.randn(5, 6)
    assert restored.net[0].out_features == module.net[0].out_features < 16
    assert torch.equal(restored.eval()(x), module.eval()(x))


def test_a_checkpoint_without_the_callback_is_refused():
    with pytest.raises(ValueError, match="written with a VBDropCallback"):
        restore_(Module(nn.Linear(2, 2)), {"callbacks": {}, "state_dict": {}})


def test_it_compresses_at_the_end(tmp_path):
    module = Module(with_dead_units())
    callback = VBDropCallback(n_train=EXAMPLES, example_inputs=torch.zeros(2, 6), submodule="net", compress_at_end=True)
    trainer(tmp_path, callback, max_epochs=1).fit(module, Data())
    x = torch.randn(5, 6)
    assert callback.compressed.model[0].out_features <= 10
    torch.testing.assert_close(callback.compressed.model(x), module.eval()(x))


def test_what_it_cannot_do_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`example_inputs` must be inputs"):
        VBDropCallback(vbdrop.Units(), n_train=10, shrink_every=1)
    with pytest.raises(ValueError, match="`shrink_every` must be a number of epochs"):
        VBDropCallback(vbdrop.Units(), n_train=10, shrink_every=0, example_inputs=torch.zeros(1))
    with pytest.raises(ValueError, match="pass modes"):
        trainer(tmp_path, VBDropCallback(n_train=10), max_epochs=1).fit(Module(PerExampleNoise()), loader())


def weights_in(model):
    return sum(int(module.weight.count_nonzero()) for module in model.modules() if isinstance(module, nn.Linear))


def test_a_target_is_reached_and_its_state_is_in_the_checkpoint(tmp_path):
    def callback():
        target = vbdrop.Target(weights=3, epochs=6, example_inputs=torch.zeros(2, 6))
        return VBDropCallback(vbdrop.Weights(), n_train=EXAMPLES, submodule="net", target=target, rate_lr=0.05)

    def module():
        torch.manual_seed(1)
        return Module(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))

    half = trainer(tmp_path, callback(), max_epochs=3)
    with pytest.warns(UserWarning, match="ended after 15 steps, before the model was cut"):
        half.fit(module(), Data())
    half.save_checkpoint(tmp_path / "half.ckpt")
    model = module()
    trainer(tmp_path, callback(), max_epochs=6).fit(model, Data(), ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    small = vbdrop.compress(model.net, torch.zeros(2, 6)).model
    assert 0 < weights_in(small) <= 24


@pytest.mark.parametrize("length", [{"max_steps": 12}, {"max_steps": 12, "max_epochs": 50}, {"max_epochs": 1}])
def test_a_target_is_reached_where_the_training_ends_by_steps_or_after_one_epoch(tmp_path, length):
    options = {"target": vbdrop.Target(weights=2), "example_inputs": torch.zeros(2, 6), "submodule": "net"}
    callback = VBDropCallback(vbdrop.Weights(), n_train=EXAMPLES, **options)
    fit = trainer(tmp_path, callback, **length)
    fit.fit(Module(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))), Data())
    (pursuit,) = callback.elbo.observers
    assert pursuit.is_cut
    assert pursuit.target.steps == fit.global_step


def test_with_a_target_the_best_checkpoint_is_one_that_has_its_size(tmp_path):
    class Worsening(Module):
        def validation_step(self, batch, index):
            self.log("error", float(self.current_epoch))

    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    options = {"target": vbdrop.Target(weights=3), "example_inputs": torch.zeros(2, 6), "submodule": "net"}
    best = pl.callbacks.ModelCheckpoint(tmp_path, monitor="error")
    callback = VBDropCallback(vbdrop.Weights(), n_train=EXAMPLES, **options)
    fit = trainer(tmp_path, callback, best, max_epochs=8, enable_checkpointing=True)
    fit.fit(Worsening(net), Data(), Data())
    assert 0 < best.best_model_score < 7
    fresh = Module(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    restore_(fresh, torch.load(best.best_model_path, weights_only=True), submodule="net")
    assert weights_in(vbdrop.compress(fresh.net, torch.zeros(2, 6)).model) <= 24


def test_an_earlier_checkpoint_of_a_shrunk_model_can_be_tested(tmp_path):
    class Tested(Module):
        def test_step(self, batch, index):
            self.log("loss", self.training_step(batch, index))

    module, callback = Tested(with_dead_units()), shrinking()
    keeping = pl.callbacks.ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=3)
    fit = trainer(tmp_path, callback, keeping, max_epochs=1, enable_checkpointing=True)
    fit.fit(module, Data())
    assert module.net[0].out_features <= 10
    fit.test(module, Data(), ckpt_path=tmp_path / "step=3.ckpt", verbose=False, weights_only=True)
    assert module.net[0].out_features == 16
    saved = torch.load(tmp_path / "step=3.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(tensor, saved[name]) for name, tensor in module.state_dict().items())


class Stopping(pl.Callback):
    def on_train_batch_end(self, *args):
        raise KeyError("stop")


def test_a_module_can_be_pickled_after_an_exception(tmp_path):
    module = Module(with_dead_units())
    with pytest.raises(KeyError, match="stop"):
        trainer(tmp_path, shrinking(), Stopping(), max_epochs=1).fit(module, Data())
    assert pickle.loads(pickle.dumps(module)).net[0].out_features == 16


def test_a_checkpoint_of_a_subclass_comes_back(tmp_path):
    class Named(VBDropCallback):
        pass

    module = Module(PerExampleNoise())
    fit = trainer(tmp_path, Named(vbdrop.Weights(), n_train=EXAMPLES), max_epochs=1, limit_train_batches=1)
    fit.fit(module, loader())
    fit.save_checkpoint(tmp_path / "end.ckpt")
    restored = restore_(Module(PerExampleNoise()), torch.load(tmp_path / "end.ckpt", weights_only=True))
    assert largest_difference(parameters_of(restored), parameters_of(module)) == 0
