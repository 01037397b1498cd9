import copy
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

from vbdrop.convert import convert_
from vbdrop.functional import MatrixProduct
from vbdrop.kernels import binding
from vbdrop.layers import Conv2d, Rates, Units, Weights
from vbdrop.layers.layer import LOWEST_LOG_SIGMA2, START_MARGIN
from vbdrop.priors import LogUniformCubic, log_alpha_of


def dead_and_alive(noisy, mode):
    """A linear layer of two weights on one input: the first is dead at the threshold of 1, the second is not."""
    layer = noisy(nn.Linear(1, 2, bias=False), mode)
    layer.weight.data = torch.tensor([[1.0], [2.0]])
    layer.log_sigma2.data = torch.tensor([[2.0], [math.log(4.0) - 2.0]])
    return layer


# how the rates start


@pytest.mark.parametrize("threshold", [3.0, -2.0])
def test_variances_start_at_the_modes_or_below_the_threshold(noisy, threshold):
    plain = nn.Linear(5, 1)
    plain.weight.data = torch.tensor([[2.0, -0.5, 1e-3, 1e-9, 0.0]])
    layer = noisy(plain, Weights(threshold=threshold, log_sigma2=-4.0))
    log_alpha = log_alpha_of(layer.weight, layer.log_sigma2).detach()[0]
    assert layer.log_sigma2[0, 0] == -4.0
    assert (layer.log_sigma2 <= -4.0).all()
    assert (log_alpha[:4] <= threshold - START_MARGIN + 1e-4).all()
    assert layer.log_sigma2[0, 4] == LOWEST_LOG_SIGMA2


@pytest.mark.parametrize(("per", "shape"), [("weight", (6, 2, 3)), ("unit", (4,)), ("layer", (1,))])
def test_rates_start_at_the_asked_rate(noisy, per, shape):
    layer = noisy(nn.Conv1d(4, 6, 3, groups=2), Rates(per=per, rate=0.2))
    assert layer.log_alpha.shape == shape
    torch.testing.assert_close(layer.log_alpha.exp(), torch.full(shape, 0.25))


@pytest.mark.parametrize("inputs", [True, False])
@pytest.mark.parametrize("outputs", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_gates_are_added_where_they_are_asked_for_and_in_the_layers_own_state(inputs, outputs, training):
    layer = nn.Conv2d(4, 6, 3).train(training)
    layer.__class__ = Conv2d
    layer.add_noise_(Units(), inputs=inputs, outputs=outputs)
    shapes = {name: tuple(gate.weight.shape) for name, gate in layer.named_children()}
    assert shapes == {**({"gate": (4,)} if inputs else {}), **({"output_gate": (6,)} if outputs else {})}
    assert all(gate.training is training for gate in layer.children())


# what training does to the dead


@pytest.mark.parametrize("masks", [True, False])
def test_the_loss_reaches_the_mean_of_a_dead_weight_only_without_the_mask_and_its_variance_always(noisy, masks):
    layer = dead_and_alive(noisy, Weights(threshold=1.0, mask_in_training=masks)).train()
    layer(torch.tensor([[3.0]])).square().sum().backward()
    assert (layer.weight.grad[0] == 0).item() is masks
    assert layer.weight.grad[1] != 0
    assert (layer.log_sigma2.grad != 0).all()


def test_the_kl_reaches_a_dead_weight(noisy):
    layer = dead_and_alive(noisy, Weights(threshold=1.0))
    (entry,) = layer.variational()
    entry.kl().backward()
    assert (layer.weight.grad != 0).all()
    assert (layer.log_sigma2.grad < 0).all()


def test_a_dead_weight_can_come_back(noisy):
    """Its variance is still trained, so a loss that asks for less noise revives it."""
    layer = dead_and_alive(noisy, Weights(threshold=1.0)).train()
    (entry,) = layer.variational()
    optimizer = torch.optim.Adam([layer.log_sigma2], lr=0.1)
    assert entry.dead()[0].item()
    for _ in range(100):
        optimizer.zero_grad()
        (layer(torch.ones(32, 1)) - torch.tensor([0.0, 2.0])).square().mean().backward()
        optimizer.step()
    assert not entry.dead().any()


# a bounded prior


def test_a_rate_beyond_the_bound_draws_the_noise_of_the_bound(noisy):
    """20,000 draws at alpha = e**2, which counts as 1; the variance within 5 standard errors."""
    n = 20_000
    layer = noisy(nn.Linear(1, 1), Rates(per="layer", prior=LogUniformCubic(), rate=0.5)).train()
    layer.log_alpha.data.fill_(2.0)
    nn.init.constant_(layer.weight, 3.0)
    variance = layer(torch.ones(n, 1)).var().item()
    assert variance == pytest.approx(9.0, abs=5 * 9.0 * math.sqrt(2 / n))


def test_a_rate_beyond_the_bound_is_drawn_back_and_not_pushed_on(noisy):
    layer = noisy(nn.Linear(1, 1), Rates(per="layer", prior=LogUniformCubic(), rate=0.5)).train()
    layer.log_alpha.data.fill_(0.5)
    x = torch.ones(64, 1)
    centred = layer(x) - layer.eval()(x)
    (by_less_noise,) = torch.autograd.grad(centred.square().sum(), layer.log_alpha, retain_graph=True)
    (by_more_noise,) = torch.autograd.grad(-centred.square().sum(), layer.log_alpha)
    assert by_less_noise > 0
    assert by_more_noise == 0


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated")  # torch's own compiler
def test_a_bounded_rate_compiles(noisy):
    layer = noisy(nn.Linear(3, 2), Rates(per="layer", prior=LogUniformCubic())).train()
    layer.log_alpha.data.fill_(0.5)
    gradients = []
    for function in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(5)
        gradients.append(torch.autograd.grad(function(torch.ones(4, 3)).square().sum(), layer.log_alpha))
    torch.testing.assert_close(*gradients)


# back to plain


def test_making_it_plain_at_another_threshold(noisy):
    for threshold, expected in ((None, [0, 2]), (1.0, [0, 2]), (5.0, [1, 2]), (-5.0, [0, 0])):
        layer = dead_and_alive(noisy, Weights(threshold=1.0))
        layer.make_plain_(threshold)
        assert layer.weight.view(-1).tolist() == expected


@pytest.mark.parametrize("threshold", [None, -50.0])
def test_making_rates_plain_changes_no_weight(randomised, threshold):
    layer = randomised(nn.Linear(4, 6), Rates(per="weight"))
    before = layer.weight.detach().clone()
    layer.make_plain_(threshold)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("bias", [True, False])
def test_gates_fold_into_the_axes_they_belong_to(noisy, bias):
    plain = nn.Linear(2, 3, bias=bias)
    nn.init.ones_(plain.weight)
    if bias:
        nn.init.ones_(plain.bias)
    layer = noisy(plain, Units())
    layer.gate.weight.data = torch.tensor([2.0, 3.0])
    layer.output_gate.weight.data = torch.tensor([5.0, 7.0, 1.0])
    layer.output_gate.log_sigma2.data[2] = 1.0  # beyond the threshold of 0
    layer.make_plain_()
    assert layer.weight.tolist() == [[10.0, 15.0], [14.0, 21.0], [0.0, 0.0]]
    assert layer.bias is None if not bias else layer.bias.tolist() == [5.0, 7.0, 0.0]


# files


def test_a_state_dict_may_have_the_rates_and_lack_the_gates_or_the_other_way_round(randomised):
    source = randomised(nn.Linear(4, 6), Weights(), Units())
    for absent, present in (("gate", "log_sigma2"), ("log_sigma2", "gate.weight")):
        target = randomised(nn.Linear(4, 6), Weights(), Units())
        lacking = {
            name: value
            for name, value in source.state_dict().items()
            if not name.startswith(absent) and not name.startswith(f"output_{absent}")
        }
        target.load_state_dict(lacking)
        assert torch.equal(target.get_parameter(present), source.get_parameter(present))
        for entry in (*target.variational(), *target.gate.variational()):
            fresh = entry.rate is (target.log_sigma2 if absent == "log_sigma2" else target.gate.log_sigma2)
            assert fresh is not entry.dead().any().item()


def test_a_plain_state_dict_can_be_assigned(noisy):
    plain, layer = nn.Linear(4, 6), noisy(nn.Linear(4, 6), Weights(), Units())
    layer.load_state_dict(plain.state_dict(), assign=True)
    torch.testing.assert_close(layer.eval()(torch.ones(1, 4)), plain(torch.ones(1, 4)))
    assert layer.log_sigma2.requires_grad


@pytest.mark.parametrize("mode", [Weights(), Rates(), Rates(per="layer")])
def test_a_plain_state_dict_can_be_assigned_to_a_layer_on_the_meta_device(noisy, mode):
    plain = nn.Linear(4, 6)
    wanted, layer = noisy(plain, mode, Units()), noisy(nn.Linear(4, 6), mode, Units()).to("meta")
    for parameter in (*layer.parameters(recurse=False), layer.gate.log_sigma2):
        parameter.requires_grad_(False)
    layer.load_state_dict(plain.state_dict(), assign=True)
    assert list(layer.state_dict()) == list(wanted.state_dict())
    for name, value in wanted.state_dict().items():
        assert torch.equal(layer.state_dict()[name], value)
    assert not layer.get_parameter(layer._rate_name("weight")).requires_grad
    assert (layer.gate.weight.requires_grad, layer.gate.log_sigma2.requires_grad) == (True, False)


def test_a_plain_state_dict_that_is_copied_leaves_a_layer_on_the_meta_device(noisy):
    layer = noisy(nn.Linear(4, 6), Weights(), Units()).to("meta")
    with pytest.warns(UserWarning, match="meta parameter"):
        layer.load_state_dict(nn.Linear(4, 6).state_dict())
    assert all(parameter.is_meta for parameter in layer.parameters())


# in the middle of other code


def test_a_layer_used_twice_gets_the_gradients_of_both_uses(randomised):
    layer = randomised(nn.Linear(4, 4), Weights(threshold=1.0), Units()).double().train()
    twice = copy.deepcopy(layer), copy.deepcopy(layer)
    x = torch.randn(3, 4, dtype=torch.float64)
    torch.manual_seed(5)
    layer(layer(x)).square().sum().backward()
    torch.manual_seed(5)
    twice[1](twice[0](x)).square().sum().backward()
    for ours, first, second in zip(layer.parameters(), *(m.parameters() for m in twice), strict=True):
        torch.testing.assert_close(ours.grad, first.grad + second.grad)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_draws_the_same_noise_again(randomised, modes, reentrant):
    layer = randomised(nn.Linear(4, 6), *modes).train()
    gradients = []
    for use in (lambda x: layer(x), lambda x: checkpoint(layer, x, use_reentrant=reentrant)):
        x = torch.ones(3, 4, requires_grad=True)
        torch.manual_seed(5)
        layer.zero_grad()
        use(x).square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in layer.parameters())])
    torch.testing.assert_close(*gradients)


def test_the_plain_formula_can_be_differentiated_twice_and_the_fused_one_says_so(randomised, modes):
    layer = randomised(nn.Linear(4, 6), *modes).train()
    x = torch.ones(3, 4, requires_grad=True)
    layer.fused = False
    (slope,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert layer.weight.grad.isfinite().all()
    layer.fused = True
    if not binding.available():
        return  # only compiled code has a backward of its own
    with pytest.raises(RuntimeError, match="set `fused = False`"):
        torch.autograd.grad(layer(x).sum(), x, create_graph=True)


def test_the_plain_formula_has_gradients_an_example_by_torch_func(randomised, modes):
    layer = randomised(nn.Linear(4, 6), *modes).train()
    layer.fused = False

    def loss(parameters, x):
        return functional_call(layer, parameters, (x,)).square().sum()

    x = torch.randn(3, 4)
    gradients = vmap(grad(loss), (None, 0), randomness="different")(dict(layer.named_parameters()), x)
    assert {name: g.shape for name, g in gradients.items()} == {
        name: (3, *p.shape) for name, p in layer.named_parameters()
    }
    assert all(g.isfinite().all() for g in gradients.values())


def test_frozen_weights_leave_the_rates_to_learn(randomised, modes):
    layer = randomised(nn.Linear(4, 6), *modes).train()
    layer.weight.requires_grad_(False)
    layer.bias.requires_grad_(False)
    layer(torch.ones(3, 4)).square().sum().backward()
    assert layer.weight.grad is None
    assert all(p.grad is not None for p in layer.parameters() if p.requires_grad)


def test_no_gradient_modes(randomised, modes):
    layer = randomised(nn.Linear(4, 6), *modes)
    expected = layer.eval()(torch.ones(3, 4))
    with torch.inference_mode():
        assert torch.equal(layer(torch.ones(3, 4)), expected)
        assert not torch.equal(layer.train()(torch.ones(3, 4)), expected)
    with torch.no_grad():
        assert not layer(torch.ones(3, 4)).requires_grad


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, in its compiler
def test_the_default_compiler_trains_it(compiler, randomised):
    layer = randomised(nn.Linear(4, 6), Weights(threshold=1.0)).train()
    compiled = torch.compile(layer, fullgraph=True)
    out = compiled(torch.ones(3, 4))
    out.square().sum().backward()
    assert not torch.equal(out, compiled(torch.ones(3, 4)))
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_a_layer_that_starts_at_zero_can_learn_in_eval_mode():
    """A first stage trains the means alone, with the noise off."""
    layer = nn.Linear(4, 2)
    nn.init.zeros_(layer.weight)
    convert_(layer, Weights())
    layer.eval()(torch.ones(1, 4)).sum().backward()
    assert layer.weight.grad.tolist() == [[1.0] * 4] * 2


@pytest.mark.parametrize("mode", [Units(), Weights(), Rates()], ids=lambda mode: type(mode).__name__)
def test_a_product_of_another_kind_is_the_one_that_is_used(mode):
    class Doubled(MatrixProduct):
        def __call__(self, x, weight, bias=None):
            return 2 * super().__call__(x, weight, bias)

    torch.manual_seed(0)
    layer, x = nn.Linear(3, 4, bias=False), torch.randn(2, 3)
    convert_(layer, mode)
    with torch.no_grad():
        for name in ("log_sigma2", "log_alpha"):
            for module in layer.modules():
                if name in module._parameters:
                    module._parameters[name].fill_(-40.0)
    torch.testing.assert_close(layer.noisy_forward(x, Doubled()), 2 * layer.noisy_forward(x, MatrixProduct()))
