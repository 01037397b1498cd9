import copy
import math

import pytest
import torch

import vbdrop
from vbdrop.kernels import binding
from vbdrop.layers import Gate, Units
from vbdrop.priors import Hierarchical


def gate_of(means, log_alphas, axis=-1, **options):
    """Gates with these means and log_alphas; the threshold is 0."""
    mean = torch.tensor(means)
    gate = Gate(len(means), axis, Units(**options), like=mean)
    gate.weight.data = mean
    gate.log_sigma2.data = torch.tensor(log_alphas) + mean.square().log()
    return gate


@pytest.mark.parametrize(
    ("like", "own"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64)],
)
def test_gates_start_at_one_in_float32_or_wider(like, own):
    gate = Gate(5, -1, Units(log_sigma2=-7.0), like=torch.ones(1, dtype=like))
    assert gate.weight.tolist() == [1.0] * 5
    assert gate.log_sigma2.tolist() == [-7.0] * 5
    assert {p.dtype for p in gate.parameters()} == {own}


@pytest.mark.parametrize(
    ("training", "sampling", "masks_in_training", "mean", "deviation"),
    [  # of a live and a dead gate, both with a mean of 2 and noise of sqrt(alpha) * 2
        (True, False, False, (2, 2), (1, 4)),
        (True, False, True, (2, 0), (1, 4)),
        (False, True, False, (2, 0), (1, 0)),
        (False, False, False, (2, 0), (0, 0)),
    ],
    ids=["training", "training-masked", "sampled", "eval"],
)
def test_what_a_dead_gate_gives(training, sampling, masks_in_training, mean, deviation):
    """20,000 draws; mean and variance within 5 standard errors."""
    n = 20_000
    gate = gate_of([2.0, 2.0], [math.log(0.25), math.log(4.0)], mask_in_training=masks_in_training).train(training)
    gate.sampling = sampling
    draws = gate(torch.ones(n, 2)).detach()
    mean, deviation = torch.tensor(mean), torch.tensor(deviation)
    assert ((draws.mean(0) - mean).abs() <= 5 * deviation / math.sqrt(n)).all()
    assert ((draws.var(0) - deviation**2).abs() <= 5 * deviation**2 * math.sqrt(2 / n)).all()


def test_one_draw_a_sample_and_unit_is_shared_over_space():
    gate = gate_of([1.0, 1.0, 1.0], [-1.0, -1.0, -1.0], axis=-3)
    z = gate(torch.ones(4, 3, 5, 6)).detach()
    assert torch.equal(z, z[:, :, :1, :1].expand_as(z))
    assert z[:, :, 0, 0].unique().numel() == 12


def test_a_dead_unit_is_exactly_zero_in_eval_and_stops_the_gradient():
    gate = gate_of([1.0, 1.0], [-2.0, 2.0]).eval()
    x = torch.tensor([[3.0, 5.0]], requires_grad=True)
    gate(x).sum().backward()
    assert gate(x).tolist() == [[3.0, 0.0]]
    assert x.grad.tolist() == [[1.0, 0.0]]
    assert gate.weight.grad.tolist() == [3.0, 0.0]


def test_it_yields_its_own_means_and_rates():
    gate = Gate(3, -1, Units(threshold=-1.5), like=torch.ones(1))
    (entry,) = gate.variational()
    assert entry.mean is gate.weight
    assert entry.rate is gate.log_sigma2
    assert entry.prior == Hierarchical()
    assert entry.threshold == -1.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_cast_leaves_the_gates_wide_and_the_features_narrow(dtype):
    gate = gate_of([1.5, 0.5], [-2.0, -2.0]).to(dtype)
    assert {p.dtype for p in gate.parameters()} == {torch.float32}
    x = torch.ones(3, 2, dtype=dtype, requires_grad=True)
    out = gate(x)
    out.float().sum().backward()
    assert (out.dtype, x.grad.dtype, gate.weight.grad.dtype) == (dtype, dtype, torch.float32)


def test_it_is_copied_with_its_state_and_printed_with_its_size():
    gate = gate_of([1.5, 0.5], [-2.0, 2.0]).eval()
    other = copy.deepcopy(gate)
    assert torch.equal(other(torch.ones(1, 2)), gate(torch.ones(1, 2)))
    assert "2 units, threshold=0.0" in repr(gate)
    gate.reset_parameters()
    assert torch.equal(gate(torch.ones(1, 2)), torch.ones(1, 2))
    assert not torch.equal(other(torch.ones(1, 2)), torch.ones(1, 2))


def gated_layer():
    """A linear layer with gates on its inputs, and two examples."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 4)
    vbdrop.convert_(layer, vbdrop.Units())
    return layer, torch.randn(2, 3, requires_grad=True)


def trained_output(layer, x):
    torch.manual_seed(1)
    return layer(x)


def test_gates_and_product_of_a_training_step_are_one_call(compiler):
    if not binding.has_products():
        pytest.skip("NOT TESTED: the kernels have no products for this processor, and torch's are used")
    layer, x = gated_layer()
    out = trained_output(layer, x)
    assert out.grad_fn.name() == "GatedLinearBackward"
    torch.manual_seed(1)
    torch.testing.assert_close(out, torch.nn.functional.linear(layer.gate(x), layer.weight, layer.bias))


@pytest.mark.parametrize(
    "hook",
    [
        lambda gate, called: gate.register_forward_hook(lambda *_: called.append("gate")),
        lambda gate, called: gate.register_forward_pre_hook(lambda *_: called.append("gate")),
        lambda gate, called: gate.register_full_backward_hook(lambda *_: called.append("gate")),
        lambda gate, called: gate.register_full_backward_pre_hook(lambda *_: called.append("gate")),
        lambda gate, called: torch.nn.modules.module.register_module_forward_hook(
            lambda module, *_: called.append("gate") if module is gate else None
        ),
    ],
    ids=["forward", "forward-pre", "backward", "backward-pre", "global"],
)
def test_the_hooks_of_gates_are_called_and_change_nothing(hook):
    layer, x = gated_layer()
    before, called = trained_output(layer, x), []
    handle = hook(layer.gate, called)
    try:
        out = trained_output(layer, x)
        out.sum().backward()
    finally:
        handle.remove()
    assert called == ["gate"]
    torch.testing.assert_close(out, before)


def test_a_forward_put_on_a_gate_is_called():
    layer, x = gated_layer()
    before, plain = trained_output(layer, x), layer.gate.forward
    layer.gate.forward = lambda x: 2 * plain(x)
    torch.testing.assert_close(trained_output(layer, x) - layer.bias, 2 * (before - layer.bias))


def test_a_gate_of_another_kind_is_called_by_itself():
    class Doubled(Gate):
        def forward(self, x):
            return 2 * super().forward(x)

    layer, x = gated_layer()
    before = trained_output(layer, x)
    layer.gate.__class__ = Doubled
    torch.testing.assert_close(trained_output(layer, x) - layer.bias, 2 * (before - layer.bias))
