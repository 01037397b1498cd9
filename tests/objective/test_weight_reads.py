import copy
import io
import warnings

import pytest
import torch
from tests.convert.outside import Attention, TiedDecoder
from torch import nn
from torch.utils.checkpoint import checkpoint

import vbdrop
from vbdrop.kernels import in_use
from vbdrop.layers import NoisyLayer, register_layer
from vbdrop.layers.table import LAYERS
from vbdrop.objective.weight_reads import WATCHED_STEPS, WeightWatch, check_weight_reads, weight_reads

MODES = [vbdrop.Weights(), vbdrop.Units(), vbdrop.Rates()]


def chain(mode, middle: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 16) if middle is None else middle, nn.Linear(16, 4))
    vbdrop.convert_(model, mode)
    return model


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_a_call_is_told_from_a_read():
    model = nn.Sequential(nn.Linear(8, 16), Attention(), TiedDecoder(16, 6))
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    reads = weight_reads(model, layers, (torch.randn(2, 5, 8),), {})
    assert reads.called == {"0", "2.encoder"}
    assert reads.outside == {"1.qkv", "1.proj", "2.encoder"}
    assert hooks(model) == 0


def test_a_layer_that_is_called_twice_reads_its_weight_by_itself():
    layer = nn.Linear(4, 4)
    reads = weight_reads(nn.Sequential(layer, nn.ReLU(), layer), {"0": layer}, (torch.randn(2, 4),), {})
    assert (reads.called, reads.outside) == ({"0"}, set())


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_the_first_step_refuses_weights_that_are_read_without_their_noise(mode):
    model = chain(mode, Attention())
    elbo = vbdrop.ELBO(model, n_train=10)
    with pytest.raises(
        RuntimeError, match=r"uses the weights of '1\.qkv', '1\.proj' without their noise.*example_inputs"
    ):
        elbo(model(torch.randn(2, 5, 8)).square().mean())
    assert hooks(model) == 0


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_a_tied_decoder_is_named_at_the_second_step_and_nothing_stays(mode):
    model = TiedDecoder(8, 6)
    vbdrop.convert_(model, mode)
    elbo, x = vbdrop.ELBO(model, n_train=10), torch.randn(5, 8)
    elbo(model(x).square().mean()).backward()
    with pytest.warns(UserWarning, match="the weights of 'encoder' are also read outside"):
        elbo(model(x).square().mean()).backward()
    elbo(model(x).square().mean()).backward()
    assert hooks(model) == 0


class Sequences(nn.Module):
    """A convolution and a recurrent layer, both of which read their weights several times in a forward."""

    def __init__(self):
        super().__init__()
        self.conv, self.gru, self.fc = nn.Conv1d(3, 6, 3), nn.GRU(6, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x):
        return self.fc(self.gru(self.conv(x).transpose(1, 2))[0][:, -1])


@pytest.fixture
def between():
    """A model, its ELBO and inputs, between the first and the second call of the ELBO, after a forward in each mode."""
    torch.manual_seed(0)
    model, x = Sequences(), torch.randn(4, 3, 9)
    vbdrop.convert_(model, vbdrop.Rates(per="unit"))
    elbo = vbdrop.ELBO(model, n_train=10)
    elbo(model(x).square().mean()).backward()
    assert hooks(model) >= 2  # by the plain formulas, the linear layer reads its weight twice, too
    model(x)
    model.eval()(x)
    model.train()
    return model, elbo, x


def test_between_the_first_two_steps_a_model_can_be_copied_and_saved(between):
    model, elbo, x = between
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for made in (copy.deepcopy(model), torch.load(file, weights_only=False), copy.deepcopy(elbo).model):
        assert torch.equal(made.eval()(x), model.eval()(x))
        assert hooks(made) == 0
    model.train()
    elbo(model(x).square().mean())
    assert hooks(model) == 0


def test_between_the_first_two_steps_a_model_can_be_compressed_as_ever(between):
    model, elbo, x = between
    with torch.no_grad():
        model.gru.weight_ih_l0[:, :2] = 0
    early = vbdrop.compress(model, x)
    assert early.plan.keep
    elbo(model(x).square().mean())
    assert hooks(model) == 0
    late = vbdrop.compress(model, x)
    assert early.plan.to_json() == late.plan.to_json()
    assert torch.equal(early.model(x), late.model(x))
    assert hooks(early.model) == 0


@pytest.mark.parametrize("kept", [True, False])
def test_an_elbo_for_every_step_leaves_one_hook_on_a_layer(between, kept):
    model, elbo, x = between
    elbos = [elbo]
    for _ in range(3):
        new = vbdrop.ELBO(model, n_train=10)
        new(model(x).square().mean()).backward()
        elbos = [*elbos, new] if kept else [new]
        assert hooks(model) == (2 if in_use() != "none" else 3)
    for elbo in elbos:
        elbo(model(x).square().mean()).backward()
    assert hooks(model) == 0


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_an_ordinary_model_is_left_in_peace(mode, fused):
    model = chain(mode)
    for module in model.modules():
        if isinstance(module, NoisyLayer):
            module.fused = fused
    watch, done = WeightWatch(model), False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(WATCHED_STEPS):
            done = done or watch.step(model(torch.randn(3, 8)).square().mean())
    assert done
    assert hooks(model) == 0


def test_a_layer_that_no_step_uses_is_named_once():
    model = chain(vbdrop.Weights())
    elbo, x = vbdrop.ELBO(model, n_train=10), torch.randn(3, 8)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2 * WATCHED_STEPS):
            elbo(model[1](model[0](x)).square().mean())
    (warning,) = [str(one.message) for one in told if "took no part" in str(one.message)]
    assert warning.startswith("'2' took no part in the loss of the first 5 steps")


def test_a_layer_that_a_later_step_uses_is_not():
    model = chain(vbdrop.Weights())
    watch, x = WeightWatch(model), torch.randn(3, 8)
    assert not watch.step(model[1](model[0](x)).square().mean())
    assert watch.step(model(x).square().mean())


class Heads(nn.Module):
    """Two heads, one of which a step uses."""

    def __init__(self):
        super().__init__()
        self.stem, self.heads = nn.Linear(8, 6), nn.ModuleList([nn.Linear(6, 2), nn.Linear(6, 2)])

    def forward(self, x, head):
        return self.heads[head](self.stem(x).relu())

    def penalty(self):
        return 1e-4 * sum(p.square().sum() for name, p in self.named_parameters() if name.endswith("weight"))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_a_penalty_on_a_layer_that_a_step_does_not_use_is_no_read(mode):
    torch.manual_seed(0)
    model, x = Heads(), torch.randn(3, 8)
    vbdrop.convert_(model, mode)
    elbo = vbdrop.ELBO(model, n_train=10)
    for step in range(2 * WATCHED_STEPS):
        elbo(model(x, step % 2).square().mean() + model.penalty()).backward()


def test_a_layer_that_only_a_penalty_uses_is_named_as_unused():
    torch.manual_seed(0)
    model, x = Heads(), torch.randn(3, 8)
    vbdrop.convert_(model, vbdrop.Weights())
    watch = WeightWatch(model)
    for _ in range(WATCHED_STEPS - 1):
        assert not watch.step(model(x, 0).square().mean() + model.penalty())
    with pytest.warns(UserWarning, match=r"'heads\.1' took no part in the loss of the first 5 steps"):
        assert watch.step(model(x, 0).square().mean() + model.penalty())


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_a_penalty_does_not_hide_weights_that_are_read_without_their_noise(mode):
    model = chain(mode, Attention())
    penalty = sum(parameter.square().sum() for parameter in model.parameters())
    with pytest.raises(RuntimeError, match=r"uses the weights of '1\.qkv', '1\.proj' without their noise"):
        vbdrop.ELBO(model, n_train=10)(model(torch.randn(2, 5, 8)).square().mean() + penalty)


def test_with_attach_the_error_says_what_to_do_about_a_penalty():
    model = Heads()
    vbdrop.convert_(model, vbdrop.Weights())
    optimizer = torch.optim.SGD(vbdrop.param_groups(model, lr=0.1), lr=0.1)
    vbdrop.ELBO(model, n_train=10).attach(optimizer)
    (model(torch.randn(3, 8), 0).square().mean() + model.penalty()).backward()
    with pytest.raises(RuntimeError, match=r"'heads\.1' without.*leave such layers out of the penalty in that step"):
        optimizer.step()


@pytest.mark.parametrize("reentrant", [True, False])
def test_layers_inside_a_checkpoint_are_not_called_unused(reentrant):
    model, x = chain(vbdrop.Weights()), torch.randn(3, 8)
    elbo = vbdrop.ELBO(model, n_train=10)
    for _ in range(2 * WATCHED_STEPS):
        hidden = checkpoint(model[1], model[0](x), use_reentrant=reentrant)
        elbo(model[2](hidden).square().mean()).backward()


def test_eval_mode_and_frozen_rates_say_nothing():
    model = chain(vbdrop.Weights())
    watch = WeightWatch(model)
    assert not watch.step(model.eval()(torch.randn(3, 8)).square().mean())
    with torch.no_grad():
        assert not watch.step(model.train()(torch.randn(3, 8)).square().mean())


def test_a_registered_class_without_a_noisy_forward_is_refused_at_the_first_step():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    class NotNoisy(vbdrop.layers.Linear, Scaled):
        def forward(self, x):
            return 2 * nn.functional.linear(x, self.weight, self.bias)

    register_layer(Scaled, NotNoisy)
    try:
        model = nn.Sequential(Scaled(4, 3), nn.Linear(3, 2))
        vbdrop.convert_(model, vbdrop.Weights())
        with pytest.raises(RuntimeError, match=r"'0' without their noise.*register_layer has no noisy forward"):
            vbdrop.ELBO(model, n_train=10)(model(torch.randn(2, 4)).square().mean())
    finally:
        del LAYERS[Scaled]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: type(mode).__name__)
def test_with_attach_the_first_step_refuses_weights_that_are_read_without_their_noise(mode):
    model = chain(mode, Attention())
    optimizer = torch.optim.SGD(vbdrop.param_groups(model, lr=0.1), lr=0.1)
    vbdrop.ELBO(model, n_train=10).attach(optimizer)
    model(torch.randn(2, 5, 8)).square().mean().backward()
    with pytest.raises(RuntimeError, match=r"uses the weights of '1\.qkv', '1\.proj' without their noise"):
        optimizer.step()
    assert hooks(model) == 0


def test_with_attach_a_layer_that_takes_no_part_is_named_once():
    model = chain(vbdrop.Weights())
    optimizer = torch.optim.SGD(vbdrop.param_groups(model, lr=0.1), lr=0.1)
    vbdrop.ELBO(model, n_train=10).attach(optimizer)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model[2](model[0](torch.randn(2, 8))).square().mean().backward()
            optimizer.step()

    train(WATCHED_STEPS - 1)
    with pytest.warns(UserWarning, match=r"'1' took no part in the loss of the first 5 steps"):
        train(1)
    train(WATCHED_STEPS)  # told once: another warning would be an error here


def test_a_model_is_checked_before_a_training():
    with pytest.raises(RuntimeError, match=r"uses the weights of '1\.proj', '1\.qkv' without their noise"):
        check_weight_reads(chain(vbdrop.Weights(), Attention()), (torch.randn(2, 5, 8),))
    model = nn.Sequential(nn.Linear(8, 4))
    model[0].spare = nn.Linear(4, 4)
    vbdrop.convert_(model, vbdrop.Weights())
    with pytest.warns(UserWarning, match=r"the forward does not use '0\.spare': only the KL trains"):
        check_weight_reads(model, (torch.randn(2, 8),))
    assert hooks(model) == 0
