import math

import pytest
import torch

from vbdrop.functional import MatrixProduct, noisy_product_reference, noisy_rates_reference, noisy_weights_reference
from vbdrop.functional.local_reparameterization import DEVIATION_FLOOR

HALVES = [torch.bfloat16, torch.float16]


def value_and_gradients(a, product):
    """The sample with the given noise, and the gradients towards x, theta, log_sigma2 and bias."""
    leaves = (a.x, a.theta, a.log_sigma2, a.bias)
    out = noisy_product_reference(a.x, a.theta, a.log_sigma2.exp(), a.bias, product, a.noise)
    return out.detach(), *torch.autograd.grad(out, leaves, a.grad)


def assert_near(found, expected, tolerance):
    """Within ``tolerance`` of the largest entry of each tensor."""
    for f, e in zip(found, expected, strict=True):
        assert f.isfinite().all()
        assert (f.double() - e.double()).abs().max() <= tolerance * e.double().abs().max()


def test_the_plain_formula_by_hand():
    """Two weights on two inputs: 2 * 3 + 1 * -1 + 0.5 = 5.5, and a variance of 4 * 0.25 + 1 * 3 = 4."""
    x, weight, sigma2 = torch.tensor([[2.0, 1.0]]), torch.tensor([[3.0, -1.0]]), torch.tensor([[0.25, 3.0]])
    for noise, expected in ((0.0, 5.5), (1.0, 7.5), (-2.0, 1.5)):
        out = noisy_product_reference(
            x, weight, sigma2, torch.tensor([0.5]), MatrixProduct(), torch.full((1, 1), noise)
        )
        assert out.item() == pytest.approx(expected)


def test_the_gradients_agree_with_finite_differences():
    noise = torch.randn(2, 3, dtype=torch.float64)
    x, theta = torch.randn(2, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    sigma2, bias = torch.rand(3, 2, dtype=torch.float64) + 0.1, torch.randn(3, dtype=torch.float64)
    leaves = [tensor.requires_grad_() for tensor in (x, theta, sigma2, bias)]
    assert torch.autograd.gradcheck(lambda *t: noisy_product_reference(*t, MatrixProduct(), noise), leaves)


def test_sampling_the_output_has_the_moments_of_sampling_the_weights():
    """Eq. 3: 40,000 draws of the weights against as many of the output, at 5 standard errors."""
    n, x = 40_000, torch.randn(1, 4)
    theta, sigma2, bias = torch.randn(3, 4), torch.rand(3, 4), torch.randn(3)
    weights = theta + sigma2.sqrt() * torch.randn(n, 3, 4)
    by_weights = torch.einsum("noi,i->no", weights, x[0]) + bias
    by_output = noisy_product_reference(x.expand(n, 4), theta, sigma2, bias, MatrixProduct())
    variance = (x**2 @ sigma2.T)[0]
    error_of_mean = (2 * variance / n).sqrt()
    error_of_variance = variance * math.sqrt(2 * 2 / n)
    assert ((by_weights.mean(0) - by_output.mean(0)).abs() < 5 * error_of_mean).all()
    assert ((by_weights.var(0) - by_output.var(0)).abs() < 5 * error_of_variance).all()
    assert ((by_output.mean(0) - (x @ theta.T + bias)[0]).abs() < 5 * error_of_mean).all()
    assert ((by_output.var(0) - variance).abs() < 5 * error_of_variance).all()


def test_every_output_has_noise_of_its_own():
    """20,000 pairs of two examples and two outputs: correlations below 5 / sqrt(n)."""
    n = 20_000
    x, theta, sigma2 = torch.ones(2, 3), torch.zeros(2, 3), torch.ones(2, 3)
    draws = noisy_product_reference(x.expand(n, 2, 3), theta, sigma2, None, MatrixProduct()).reshape(n, 4)
    correlations = torch.corrcoef(draws.T) - torch.eye(4)
    assert correlations.abs().max() < 5 / math.sqrt(n)


def test_an_input_of_zeros_gives_the_bias_and_finite_gradients(case):
    a = case.arguments(torch.float32)
    a.x.data.zero_()
    out, by_x, by_theta, by_log_sigma2, _ = value_and_gradients(a, case.product)
    torch.testing.assert_close(out, case.product(a.x, a.theta, a.bias).detach(), rtol=0, atol=1e-12)
    assert by_x.isfinite().all()
    assert (by_theta == 0).all()
    assert (by_log_sigma2 == 0).all()


def test_the_naive_root_has_no_gradient_at_zero():
    x, sigma2 = torch.zeros(1, 3), torch.ones(2, 3, requires_grad=True)
    (x.square() @ sigma2.T).sqrt().sum().backward()
    assert sigma2.grad.isnan().any()


def test_a_deviation_below_the_floor_has_no_gradient():
    """The gradient of a root grows without bound towards zero; what no noise reaches must not swamp its neighbours."""
    x = torch.tensor([[1e-3], [1.0]])
    sigma2 = torch.full((1, 1), DEVIATION_FLOOR**2, requires_grad=True)
    noise, theta = torch.ones(2, 1), torch.ones(1, 1)
    for inputs in (x[:1], torch.zeros(1, 1)):
        out = noisy_product_reference(inputs, theta, sigma2, None, MatrixProduct(), noise[:1])
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
        out = noisy_product_reference(a.x, a.theta, a.log_sigma2.exp(), a.bias, some_case.product, a.noise)
    leaves = (a.x, a.theta, a.log_sigma2, a.bias)
    gradients = torch.autograd.grad(out, leaves, a.grad)
    assert out.dtype == dtype
    assert [g.dtype for g in gradients] == [leaf.dtype for leaf in leaves]
    tolerance = 20 * torch.finfo(dtype).eps
    assert_near((out, *gradients), value_and_gradients(exact, some_case.product), tolerance)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("size", "variance"), [(300.0, 0.5), (1e-4, 0.5), (1e-4, 5000.0)])
def test_the_variance_is_never_computed_in_half_precision(size, variance, dtype):
    """The squares of 300 and of 1e-4 are infinity and zero in float16, and so is a step of the last gradient."""
    x = torch.full((1, 8), size, dtype=dtype, requires_grad=True)
    theta, sigma2 = torch.zeros(2, 8, dtype=dtype), torch.full((2, 8), variance, requires_grad=True)
    out = noisy_product_reference(x, theta, sigma2, None, MatrixProduct(), torch.ones(1, 2))
    by_x, by_sigma2 = torch.autograd.grad(out.sum(), (x, sigma2))
    tolerance = 4 * torch.finfo(dtype).eps
    assert out.tolist()[0] == pytest.approx([size * math.sqrt(8 * variance)] * 2, rel=tolerance)
    assert by_x.tolist()[0] == pytest.approx([2 * math.sqrt(variance / 8)] * 8, rel=tolerance)
    assert by_sigma2.isfinite().all()


def test_naive_squares_in_float16_overflow_and_vanish():
    assert torch.tensor(300.0, dtype=torch.float16).square().isinf()
    assert torch.tensor(1e-4, dtype=torch.float16).square() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_given_noise_and_the_arguments_are_left_alone(some_case, dtype):
    a = some_case.arguments(dtype)
    before = [tensor.detach().clone() for tensor in a]
    value_and_gradients(a, some_case.product)
    assert all(torch.equal(now, then) for now, then in zip(a, before, strict=True))


def test_shapes_can_be_had_without_numbers(some_case):
    a = some_case.arguments()
    x, theta, log_sigma2, bias = (t.detach().to("meta") for t in a[:4])
    assert noisy_product_reference(x, theta, log_sigma2.exp(), bias, some_case.product).shape == a.noise.shape


def test_it_can_be_differentiated_twice():
    x, theta = torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    out = noisy_product_reference(x, theta, torch.rand(4, 3), None, MatrixProduct(), torch.ones(2, 4))
    penalty = torch.autograd.grad(out.square().sum(), x, create_graph=True)[0].square().sum()
    assert torch.autograd.grad(penalty, theta)[0].isfinite().all()


def test_the_noise_is_one_draw_of_torchs_generator(some_case):
    """The same numbers, in the same order, whatever is computed beside it: a record can be made again."""
    a = some_case.arguments()
    torch.manual_seed(3)
    out = noisy_product_reference(a.x, a.theta, a.log_sigma2.exp(), a.bias, some_case.product)
    torch.manual_seed(3)
    noise = torch.randn_like(out)
    expected = noisy_product_reference(a.x, a.theta, a.log_sigma2.exp(), a.bias, some_case.product, noise)
    assert torch.equal(out, expected)


def test_one_variance_per_weight_and_one_rate_are_the_product_with_those_variances(some_case):
    a = some_case.arguments()
    sigma2 = a.log_sigma2.exp()
    expected = noisy_product_reference(a.x, a.theta, sigma2, a.bias, some_case.product, a.noise)
    by_weight = noisy_weights_reference(a.x, a.theta, a.log_sigma2, a.bias, some_case.product, None, a.noise)
    log_alpha = a.log_sigma2 - a.theta.square().log()
    by_rate = noisy_rates_reference(a.x, a.theta, log_alpha, a.bias, some_case.product, a.noise)
    torch.testing.assert_close(by_weight, expected)
    torch.testing.assert_close(by_rate, expected)
