"""A linear layer with a rate for each input in one call of compiled code, against the plain formula in float64."""

import pytest
import torch
from torch import Tensor

import vbdrop
from vbdrop.functional import MatrixProduct, noisy_rates_reference
from vbdrop.kernels import noisy_rates


@pytest.fixture(autouse=True)
def _kernels(products):
    """They are there, with products of their own."""


def arguments(
    samples: int, inputs: int, outputs: int, *, need_x: bool = True, bias: bool = True
) -> list[Tensor | None]:
    """x, weight, log_alpha and bias; one weight is exactly zero."""
    torch.manual_seed(0)
    weight = torch.randn(outputs, inputs)
    weight[0, 0] = 0.0
    log_alpha = torch.empty(inputs).uniform_(-8, 2)
    given = [torch.randn(samples, inputs), weight, log_alpha, torch.randn(outputs) if bias else None]
    wanted = [need_x, True, True, bias]
    return [t if t is None else t.requires_grad_(need) for t, need in zip(given, wanted, strict=True)]


def per_input(log_alpha):
    return log_alpha.unsqueeze(0) if log_alpha.dim() == 1 else log_alpha


def by_the_formula(x, weight, log_alpha, bias, noise):
    return noisy_rates_reference(x, weight, per_input(log_alpha), bias, MatrixProduct(), noise)


def rated_linear(x, weight, log_alpha, bias, noise=None):
    return noisy_rates(x, weight, per_input(log_alpha), bias, MatrixProduct(), noise)


def is_one_call(out):
    """Whether one kernel made it; a view of its result, for features of other than two axes."""
    made = out.grad_fn
    return "NoisyLinear" in (made if made.name() != "ViewBackward0" else made.next_functions[0][0]).name()


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
def test_it_gives_what_the_formula_gives(sizes, need_x, bias):
    given = arguments(*sizes, need_x=need_x, bias=bias)
    noise = torch.randn(sizes[0], sizes[2])
    wide = [t if t is None else t.detach().double().requires_grad_(t.requires_grad) for t in given]
    for ours, true in zip(
        results(rated_linear, given, noise), results(by_the_formula, wide, noise.double()), strict=True
    ):
        torch.testing.assert_close(ours.double(), true, rtol=2e-5, atol=3e-6 * true.abs().max().item() + 1e-30)


@pytest.mark.parametrize("shape", [(3,), (2, 5, 3)], ids=str)
def test_one_rate_for_all_and_any_number_of_axes(shape):
    _, weight, _, bias = arguments(1, 3, 4)
    x, log_alpha = torch.randn(shape, requires_grad=True), torch.tensor(-1.5, requires_grad=True)
    noise, given = torch.randn(*shape[:-1], 4), [x, weight, log_alpha, bias]
    for ours, plain in zip(results(rated_linear, given, noise), results(by_the_formula, given, noise), strict=True):
        assert ours.shape == plain.shape
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


def test_threads_change_no_bit():
    given, noise = arguments(64, 300, 130), torch.randn(64, 130)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(results(rated_linear, given, noise))
    torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_a_second_derivative_is_refused():
    given = arguments(4, 3, 2)
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(rated_linear(*given).sum(), given[0], create_graph=True)


@pytest.mark.parametrize("replaced", [0, 1], ids=["x", "weight"])
def test_what_was_replaced_before_the_backward_is_refused(replaced):
    given = arguments(4, 3, 2)
    out = rated_linear(*given)
    given[replaced].data = given[replaced].data[:, :2].clone()
    with pytest.raises(RuntimeError, match="replaced between forward and backward"):
        out.sum().backward()


@pytest.mark.parametrize(
    "change",
    [
        {0: torch.ones(3, 2).T},
        {1: torch.ones(3, 4, requires_grad=True).T},
        {2: torch.ones(4, 3, requires_grad=True)},
        {2: torch.ones(3, dtype=torch.float64)},
    ],
    ids=["transposed", "order", "one per weight", "float64"],
)
def test_what_does_not_fit_is_left_to_others(change):
    given = arguments(2, 3, 4)
    assert is_one_call(rated_linear(*given))
    for position, tensor in change.items():
        given[position] = tensor
    assert not is_one_call(rated_linear(*given))


@pytest.mark.parametrize(("per", "name"), [("unit", "NoisyLinear"), ("layer", "NoisyLinear"), ("weight", "Perturbed")])
def test_a_layer_in_training_takes_it_where_its_inputs_have_the_rates(per, name):
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(3, 4), torch.randn(2, 3)
    vbdrop.convert_(layer, vbdrop.Rates(per=per))
    assert layer(x).grad_fn.name() == f"{name}Backward"
    assert layer.eval()(x).grad_fn.name() == "AddmmBackward0"


def test_the_noise_has_the_variance_of_the_formula():
    """100,000 samples of one example: the mean and the variance within 5 standard errors."""
    _, weight, log_alpha, bias = arguments(1, 3, 4)
    n, x = 100_000, torch.randn(1, 3)
    out = rated_linear(x.expand(n, 3).contiguous(), weight, log_alpha, bias)
    mean, variance = torch.nn.functional.linear(x, weight, bias)[0], (log_alpha.exp() * weight.square()) @ x[0].square()
    assert ((out.mean(0) - mean).abs() < 5 * (variance / n).sqrt()).all()
    assert ((out.var(0) - variance).abs() < 5 * variance * (2 / n) ** 0.5).all()
