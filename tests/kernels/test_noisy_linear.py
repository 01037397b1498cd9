"""A noisy linear layer in one call of compiled code against the plain formula."""

import pytest
import torch
from torch import Tensor

from vbdrop.functional import MatrixProduct, noisy_weights_reference
from vbdrop.kernels import noisy_weights

THRESHOLD = 3.0


@pytest.fixture(autouse=True)
def _kernels(products):
    """They are there, with products of their own."""


def arguments(samples: int, inputs: int, outputs: int, *, need_x: bool, bias: bool) -> list[Tensor | None]:
    """x, theta, log_sigma2, bias and noise; some weights are dead, and one is exactly zero."""
    torch.manual_seed(0)
    theta = torch.randn(outputs, inputs)
    theta[0, 0] = 0.0
    log_sigma2 = torch.empty(outputs, inputs).uniform_(-12, 6)
    given = [torch.randn(samples, inputs), theta, log_sigma2, torch.randn(outputs) if bias else None]
    wanted = [need_x, True, True, bias]
    leaves = [t if t is None else t.requires_grad_(need) for t, need in zip(given, wanted, strict=True)]
    return [*leaves, torch.randn(samples, outputs)]


def in_one_call(x, theta, log_sigma2, bias, noise):
    out = noisy_weights(x, theta, log_sigma2, bias, MatrixProduct(), THRESHOLD, noise)
    made = out.grad_fn
    assert "NoisyLinear" in (made if made.name() != "ViewBackward0" else made.next_functions[0][0]).name()
    return out


def by_the_formula(x, theta, log_sigma2, bias, noise):
    return noisy_weights_reference(x, theta, log_sigma2, bias, MatrixProduct(), THRESHOLD, noise)


def results(function: object, given: list[Tensor | None]) -> list[Tensor]:
    """Output, and the gradients of a weighted sum of it."""
    out = function(*given)
    weights = torch.linspace(0.5, 1.5, out.numel()).view_as(out)
    leaves = [t for t in given[:4] if t is not None and t.requires_grad]
    return [out.detach(), *torch.autograd.grad((weights * out).sum(), leaves)]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("need_x", [True, False])
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1), (3, 5, 2), (17, 33, 7), (32, 64, 24), (64, 300, 130), (300, 90, 400), (5, 5000, 13)],
    ids=str,
)
def test_it_gives_what_the_formula_gives(sizes, need_x, bias):
    given = arguments(*sizes, need_x=need_x, bias=bias)
    for mine, theirs in zip(results(in_one_call, given), results(by_the_formula, given), strict=True):
        scale = theirs.abs().max().item() + 1e-30
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-6 * scale)


@pytest.mark.parametrize("shape", [(3,), (2, 5, 3), (2, 1, 2, 3)], ids=str)
def test_features_may_have_any_number_of_axes(shape):
    torch.manual_seed(0)
    x, theta, bias = torch.randn(shape, requires_grad=True), torch.randn(4, 3), torch.randn(4)
    log_sigma2, noise = torch.empty(4, 3).uniform_(-12, 6), torch.randn(*shape[:-1], 4)
    given = [x, theta, log_sigma2, bias, noise]
    torch.testing.assert_close(results(in_one_call, given), results(by_the_formula, given))


def test_a_large_batch_loses_no_digits():
    """Sums over 65,536 samples whose terms are all alike, which one sum after another in float32 would get wrong."""
    n = 2**16
    x, theta, log_sigma2 = torch.ones(n, 3), torch.ones(2, 3), torch.full((2, 3), -20.0)
    given = [t.requires_grad_() for t in (theta, log_sigma2, torch.zeros(2))]
    out = in_one_call(x, *given, torch.zeros(n, 2))
    by_theta, by_bias = torch.autograd.grad(out, [given[0], given[2]], torch.full_like(out, 0.1))
    exact = n * torch.tensor(0.1).double().item()
    assert by_theta.double().flatten().tolist() == pytest.approx([exact] * 6, rel=1e-5)
    assert by_bias.double().tolist() == pytest.approx([exact] * 2, rel=1e-7)


def test_threads_change_no_bit():
    given = arguments(64, 300, 130, need_x=True, bias=True)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(results(in_one_call, given))
    torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


@pytest.mark.parametrize("sizes", [(17, 33, 7), (64, 300, 130)], ids=str)
def test_wider_registers_give_the_same(sizes, wide_registers):
    given = arguments(*sizes, need_x=True, bias=True)
    here = results(in_one_call, given)
    with wide_registers():
        there = results(in_one_call, given)
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6 * one.abs().max().item())


def test_the_noise_follows_the_seed_and_is_the_one_of_two_products_and_a_kernel():
    given = arguments(8, 6, 4, need_x=False, bias=True)
    given[4] = None

    class Other(MatrixProduct):
        """The same map, of another kind: it has no kernel of its own."""

    outs = []
    for seed, product in ((1, MatrixProduct()), (1, Other()), (2, MatrixProduct())):
        torch.manual_seed(seed)
        outs.append(noisy_weights(*given[:4], product, THRESHOLD))
    assert [out.grad_fn.name() for out in outs[:2]] == ["NoisyLinearBackward", "PerturbedBackward"]
    torch.testing.assert_close(outs[0], outs[1])
    assert (outs[0] - outs[2]).abs().max() > 0.1


def test_given_noise_is_left_as_it_was():
    given = arguments(4, 3, 2, need_x=True, bias=True)
    noise = given[4].clone()
    in_one_call(*given)
    assert torch.equal(given[4], noise)


def test_an_expanded_gradient_is_read_as_what_it_stands_for():
    given = arguments(4, 3, 2, need_x=True, bias=True)
    out = in_one_call(*given)
    (by_bias,) = torch.autograd.grad(out.sum(), [given[3]])
    assert by_bias.tolist() == [4.0, 4.0]


def test_another_device_by_default_changes_nothing():
    given = arguments(4, 3, 2, need_x=True, bias=True)
    plain = results(in_one_call, given)
    with torch.device("meta"):
        given[4] = given[4].clone()
        out, drawn = in_one_call(*given), in_one_call(*given[:4], None)
    assert torch.equal(out, plain[0])
    assert drawn.isfinite().all()


@pytest.mark.parametrize("replaced", ["smaller", "double", "input"])
def test_what_was_replaced_after_the_forward_is_refused(replaced):
    theta, log_sigma2 = torch.randn(30, 40, requires_grad=True), torch.zeros(30, 40, requires_grad=True)
    x = torch.randn(5, 40, requires_grad=True)
    out = in_one_call(x, theta, log_sigma2, None, None)
    if replaced == "smaller":
        theta.data, log_sigma2.data = theta.data[:2, :3].clone(), log_sigma2.data[:2, :3].clone()
    elif replaced == "double":
        theta.data, log_sigma2.data = theta.data.double(), log_sigma2.data.double()
    else:
        x.data = x.data[:2].clone()
    with pytest.raises(RuntimeError, match="replaced between forward and backward"):
        out.sum().backward()


def test_a_gradient_with_torchs_negative_bit_is_read_with_its_sign():
    given = arguments(4, 3, 2, need_x=True, bias=True)
    numbers = torch.randn(4, 2)
    negative = torch.complex(torch.zeros(4, 2), numbers).conj().imag
    assert negative.is_neg()
    assert torch.equal(negative, -numbers)
    found, expected = (torch.autograd.grad(in_one_call(*given), given[:4], g) for g in (negative, -numbers))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
