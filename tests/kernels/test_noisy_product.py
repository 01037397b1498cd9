"""A product whose noise comes from a kernel, against the plain formula."""

import math

import pytest
import torch

from vbdrop.functional import MatrixProduct, noisy_product_reference
from vbdrop.functional.local_reparameterization import DEVIATION_FLOOR
from vbdrop.kernels import noisy_product

HALVES = [torch.bfloat16, torch.float16]


def value_and_gradients(function, a, product, bias=True):
    """The sample with the given noise, and the gradients towards x, theta, log_sigma2 and bias."""
    leaves = (a.x, a.theta, a.log_sigma2, *([a.bias] if bias else []))
    out = function(a.x, a.theta, a.log_sigma2.exp(), a.bias if bias else None, product, a.noise)
    return out.detach(), *torch.autograd.grad(out, leaves, a.grad)


def assert_near(found, expected, tolerance):
    """Within ``tolerance`` of the largest entry of each tensor."""
    for f, e in zip(found, expected, strict=True):
        assert f.isfinite().all()
        assert (f.double() - e.double()).abs().max() <= tolerance * e.double().abs().max()


@pytest.mark.parametrize("bias", [True, False])
def test_the_fused_product_is_the_plain_formula_in_float64(case, bias):
    a = case.arguments()
    fused, plain = (value_and_gradients(f, a, case.product, bias) for f in (noisy_product, noisy_product_reference))
    torch.testing.assert_close(fused, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("_kernels")
def test_the_fused_product_is_the_plain_formula_in_float32(case):
    a = case.arguments(torch.float32)
    fused, plain = (value_and_gradients(f, a, case.product) for f in (noisy_product, noisy_product_reference))
    assert_near(fused, plain, 1e-5)


@pytest.mark.usefixtures("_kernels")
def test_the_plain_formula_by_hand():
    """Two weights on two inputs: 2 * 3 + 1 * -1 + 0.5 = 5.5, and a variance of 4 * 0.25 + 1 * 3 = 4."""
    x, weight, sigma2 = torch.tensor([[2.0, 1.0]]), torch.tensor([[3.0, -1.0]]), torch.tensor([[0.25, 3.0]])
    for noise, expected in ((0.0, 5.5), (1.0, 7.5), (-2.0, 1.5)):
        out = noisy_product(x, weight, sigma2, torch.tensor([0.5]), MatrixProduct(), torch.full((1, 1), noise))
        assert out.item() == pytest.approx(expected)


@pytest.mark.usefixtures("_kernels")
def test_sampling_the_output_has_the_moments_of_sampling_the_weights():
    """Eq. 3: 40,000 draws of the weights against as many of the output, at 5 standard errors."""
    n, x = 40_000, torch.randn(1, 4)
    theta, sigma2, bias = torch.randn(3, 4), torch.rand(3, 4), torch.randn(3)
    weights = theta + sigma2.sqrt() * torch.randn(n, 3, 4)
    by_weights = torch.einsum("noi,i->no", weights, x[0]) + bias
    by_output = noisy_product(x.expand(n, 4), theta, sigma2, bias, MatrixProduct())
    variance = (x**2 @ sigma2.T)[0]
    error_of_mean = (2 * variance / n).sqrt()
    error_of_variance = variance * math.sqrt(2 * 2 / n)
    assert ((by_weights.mean(0) - by_output.mean(0)).abs() < 5 * error_of_mean).all()
    assert ((by_weights.var(0) - by_output.var(0)).abs() < 5 * error_of_variance).all()
    assert ((by_output.mean(0) - (x @ theta.T + bias)[0]).abs() < 5 * error_of_mean).all()
    assert ((by_output.var(0) - variance).abs() < 5 * error_of_variance).all()


@pytest.mark.usefixtures("_kernels")
def test_every_output_has_noise_of_its_own():
    """20,000 pairs of two examples and two outputs: correlations below 5 / sqrt(n)."""
    n = 20_000
    x, theta, sigma2 = torch.ones(2, 3), torch.zeros(2, 3), torch.ones(2, 3)
    draws = noisy_product(x.expand(n, 2, 3), theta, sigma2, None, MatrixProduct()).reshape(n, 4)
    correlations = torch.corrcoef(draws.T) - torch.eye(4)
    assert correlations.abs().max() < 5 / math.sqrt(n)


@pytest.mark.usefixtures("_kernels")
def test_an_input_of_zeros_gives_the_bias_and_finite_gradients(case):
    a = case.arguments(torch.float32)
    a.x.data.zero_()
    out, by_x, by_theta, by_log_sigma2, _ = value_and_gradients(noisy_product, a, case.product)
    torch.testing.assert_close(out, case.product(a.x, a.theta, a.bias).detach(), rtol=0, atol=1e-12)
    assert by_x.isfinite().all()
    assert (by_theta == 0).all()
    assert (by_log_sigma2 == 0).all()


@pytest.mark.usefixtures("_kernels")
def test_a_deviation_below_the_floor_has_no_gradient():
    """The gradient of a root grows without bound towards zero; what no noise reaches must not swamp its neighbours."""
    x = torch.tensor([[1e-3], [1.0]])
    sigma2 = torch.full((1, 1), DEVIATION_FLOOR**2, requires_grad=True)
    noise, theta = torch.ones(2, 1), torch.ones(1, 1)
    for inputs in (x[:1], torch.zeros(1, 1)):
        out = noisy_product(inputs, theta, sigma2, None, MatrixProduct(), noise[:1])
        assert torch.autograd.grad(out.sum(), sigma2)[0].item() == 0.0


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("form", ["autocast", "narrow-input", "cast"])
def test_half_precision_stays_near_the_exact_sample(some_case, form, dtype):
    """Under autocast with a wide and with a narrow input, and with all but the variances cast."""
    exact = some_case.arguments()
    a = type(exact)(*(tensor.detach().float().requires_grad_() for tensor in exact))
    narrow = {"autocast": (), "narrow-input": ("x",), "cast": ("x", "theta", "bias")}[form]
    a = a._replace(**{name: getattr(a, name).detach().to(dtype).requires_grad_() for name in narrow})
    a = a._replace(grad=a.grad.detach().to(dtype))
    with torch.autocast("cpu", dtype, enabled=form != "cast"):
        out = noisy_product(a.x, a.theta, a.log_sigma2.exp(), a.bias, some_case.product, a.noise)
    leaves = (a.x, a.theta, a.log_sigma2, a.bias)
    gradients = torch.autograd.grad(out, leaves, a.grad)
    assert out.dtype == dtype
    assert [g.dtype for g in gradients] == [leaf.dtype for leaf in leaves]
    tolerance = 20 * torch.finfo(dtype).eps
    assert_near((out, *gradients), value_and_gradients(noisy_product_reference, exact, some_case.product), tolerance)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("size", "variance"), [(300.0, 0.5), (1e-4, 0.5), (1e-4, 5000.0)])
def test_the_variance_is_never_computed_in_half_precision(size, variance, dtype):
    """The squares of 300 and of 1e-4 are infinity and zero in float16, and so is a step of the last gradient."""
    x = torch.full((1, 8), size, dtype=dtype, requires_grad=True)
    theta, sigma2 = torch.zeros(2, 8, dtype=dtype), torch.full((2, 8), variance, requires_grad=True)
    out = noisy_product(x, theta, sigma2, None, MatrixProduct(), torch.ones(1, 2))
    by_x, by_sigma2 = torch.autograd.grad(out.sum(), (x, sigma2))
    tolerance = 4 * torch.finfo(dtype).eps
    assert out.tolist()[0] == pytest.approx([size * math.sqrt(8 * variance)] * 2, rel=tolerance)
    assert by_x.tolist()[0] == pytest.approx([2 * math.sqrt(variance / 8)] * 8, rel=tolerance)
    assert by_sigma2.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_given_noise_and_the_arguments_are_left_alone(some_case, dtype):
    a = some_case.arguments(dtype)
    before = [tensor.detach().clone() for tensor in a]
    value_and_gradients(noisy_product, a, some_case.product)
    assert all(torch.equal(now, then) for now, then in zip(a, before, strict=True))


def test_both_forms_draw_the_same_noise_from_the_same_seed(some_case):
    a = some_case.arguments()
    draws = []
    for function in (noisy_product_reference, noisy_product, noisy_product):
        torch.manual_seed(3)
        draws.append(function(a.x, a.theta, a.log_sigma2.exp(), a.bias, some_case.product).detach())
    torch.testing.assert_close(draws[0], draws[1])
    assert torch.equal(draws[1], draws[2])


@pytest.mark.parametrize("loss", [lambda out: out.sum(), lambda out: out.square().sum()], ids=["linear", "square"])
def test_a_kernel_has_no_second_derivative_and_says_so(loss, switched_on):
    x, theta = torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    out = noisy_product(x, theta, torch.rand(4, 3), None, MatrixProduct(), torch.ones(2, 4))
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss(out), x, create_graph=True)


def test_shapes_can_be_had_without_numbers(some_case):
    a = some_case.arguments()
    x, theta, log_sigma2, bias = (t.detach().to("meta") for t in a[:4])
    assert noisy_product(x, theta, log_sigma2.exp(), bias, some_case.product).shape == a.noise.shape


@pytest.mark.parametrize("needed", ["x", "theta", "log_sigma2", "bias"])
def test_what_is_frozen_gets_no_gradient(some_case, needed, compiler):
    a = some_case.arguments(torch.float32)
    for name in ("x", "theta", "log_sigma2", "bias"):
        getattr(a, name).requires_grad_(name == needed)
    noisy_product(a.x, a.theta, a.log_sigma2.exp(), a.bias, some_case.product).sum().backward()
    assert [n for n in ("x", "theta", "log_sigma2", "bias") if getattr(a, n).grad is not None] == [needed]


def test_the_kernel_keeps_one_tensor_of_the_outputs_size(some_case, switched_on):
    """Beside what torch keeps for the two products."""
    a, kept = some_case.arguments(torch.float32), []
    sigma2 = a.log_sigma2.detach().exp().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        out = noisy_product(a.x, a.theta, sigma2, a.bias, some_case.product)
    assert sum(t.shape == out.shape for t in kept) == 1
