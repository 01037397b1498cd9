"""A linear layer with gates on its inputs in one call of compiled code, against gates and then a product."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vbdrop.functional import noisy_gates_reference
from vbdrop.kernels import gated_linear, noisy_gates

THRESHOLD = 3.0


@pytest.fixture(autouse=True)
def _kernels(products):
    """They are there, with products of their own."""


def arguments(
    samples: int, inputs: int, outputs: int, *, need_x: bool = True, bias: bool = True
) -> list[Tensor | None]:
    """x, mean, log_sigma2, weight and bias; some gates are dead, and one is exactly zero."""
    torch.manual_seed(0)
    x, mean, weight = torch.randn(samples, inputs), torch.randn(inputs), torch.randn(outputs, inputs)
    mean[0] = 0.0
    log_sigma2 = torch.empty(inputs).uniform_(-12, 6)
    given = [x, mean, log_sigma2, weight, torch.randn(outputs) if bias else None]
    wanted = [need_x, True, True, True, bias]
    return [t if t is None else t.requires_grad_(need) for t, need in zip(given, wanted, strict=True)]


def in_two_steps(x, mean, log_sigma2, weight, bias, noise):
    gated = noisy_gates_reference(x, mean, log_sigma2, -1, THRESHOLD, noise)
    return F.linear(gated, weight, bias)


def in_one_call(x, mean, log_sigma2, weight, bias, noise):
    out = gated_linear(x, mean, log_sigma2, weight, bias, THRESHOLD, noise)
    assert out is not None
    return out


def results(function, given: list[Tensor | None], noise: Tensor) -> list[Tensor]:
    """Output, and the gradients of a weighted sum of it."""
    out = function(*given, noise)
    weights = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view_as(out)
    leaves = [t for t in given if t is not None and t.requires_grad]
    return [out.detach(), *torch.autograd.grad((weights * out).sum(), leaves)]


SIZES = [(1, 1, 1), (3, 5, 2), (17, 33, 7), (32, 64, 24), (64, 300, 130), (300, 90, 400), (5, 5000, 13)]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("need_x", [True, False])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_it_gives_what_gates_and_product_give(sizes, need_x, bias):
    given = arguments(*sizes, need_x=need_x, bias=bias)
    noise = torch.randn(sizes[:2])
    wide = [t if t is None else t.detach().double().requires_grad_(t.requires_grad) for t in given]
    exact = results(in_two_steps, wide, noise.double())
    for ours, true in zip(results(in_one_call, given, noise), exact, strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=2e-5, atol=3e-6 * true.abs().max().item() + 1e-30)


def test_the_noise_is_that_of_the_gates_and_follows_the_seed():
    given = arguments(8, 6, 4)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(in_one_call(*given, None))
    torch.manual_seed(1)
    steps = F.linear(noisy_gates(*given[:3], -1, THRESHOLD), *given[3:])
    torch.testing.assert_close(outs[0], steps)
    assert torch.equal(outs[0], outs[1])
    assert (outs[0] - outs[2]).abs().max() > 0.1


@pytest.mark.parametrize("shape", [(3,), (2, 5, 3), (2, 1, 2, 3)], ids=str)
def test_features_may_have_any_number_of_axes(shape):
    _, *parameters = arguments(1, 3, 4)
    x, noise = torch.randn(shape, requires_grad=True), torch.randn(shape)
    parts = results(in_one_call, [x, *parameters], noise), results(in_two_steps, [x, *parameters], noise)
    for ours, steps in zip(*parts, strict=True):
        assert ours.shape == steps.shape
        torch.testing.assert_close(ours, steps, rtol=1e-5, atol=1e-5)


def test_a_large_batch_loses_no_digits():
    """Sums over 65,536 samples whose terms are all alike, which one sum after another in float32 would get wrong."""
    n = 2**16
    x, mean, log_sigma2 = torch.ones(n, 3), torch.ones(3), torch.full((3,), -20.0)
    weight, bias = torch.ones(2, 3), torch.zeros(2)
    given = [x, *(t.requires_grad_() for t in (mean, log_sigma2, weight, bias))]
    out = in_one_call(*given, torch.zeros(n, 3))
    by_weight, by_bias = torch.autograd.grad(out, [weight, bias], torch.full_like(out, 0.1))
    exact = n * torch.tensor(0.1).double().item()
    assert by_weight.double().flatten().tolist() == pytest.approx([exact] * 6, rel=1e-5)
    assert by_bias.double().tolist() == pytest.approx([exact] * 2, rel=1e-7)


def test_wider_registers_give_the_same(wide_registers):
    given, noise = arguments(64, 300, 130), torch.randn(64, 300)
    here = results(in_one_call, given, noise)
    with wide_registers():
        there = results(in_one_call, given, noise)
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6 * one.abs().max().item())


def test_threads_change_no_bit():
    given, noise = arguments(64, 300, 130), torch.randn(64, 300)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(results(in_one_call, given, noise))
    torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_a_second_derivative_is_refused():
    given = arguments(4, 3, 2)
    out = in_one_call(*given, None)
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(out.sum(), given[0], create_graph=True)


@pytest.mark.parametrize("replaced", [0, 1, 3], ids=["x", "gates", "weight"])
def test_what_was_replaced_before_the_backward_is_refused(replaced):
    given = arguments(4, 3, 2)
    out = in_one_call(*given, None)
    given[replaced].data = given[replaced].data[..., :2].clone()
    with pytest.raises(RuntimeError, match="replaced between forward and backward"):
        out.sum().backward()


@pytest.mark.parametrize(
    "change",
    [
        {0: torch.ones(3, 2).T},
        {0: torch.ones(0, 3)},
        {0: torch.ones(2, 3, dtype=torch.float64)},
        {0: torch.ones(2, 5)},
        {1: torch.ones(4, requires_grad=True)},
        {3: torch.ones(3, 4, requires_grad=True).T},
        {4: torch.ones(3)},
    ],
    ids=["transposed", "empty", "float64", "inputs", "gates", "order", "bias"],
)
def test_what_does_not_fit_is_left_to_others(change):
    given = arguments(2, 3, 4)
    assert gated_linear(*given) is not None
    for position, tensor in change.items():
        given[position] = tensor
    assert gated_linear(*given) is None


def test_autocast_and_a_noise_of_another_shape_are_left_to_others():
    given = arguments(2, 3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert gated_linear(*given) is None
    assert gated_linear(*given, noise=torch.ones(2, 4)) is None


def test_what_is_frozen_gets_no_gradient():
    given = arguments(4, 3, 2, need_x=False)
    given[1].requires_grad_(False)
    given[3].requires_grad_(False)
    in_one_call(*given, None).sum().backward()
    assert [t.grad is not None for t in given] == [False, False, True, False, True]
