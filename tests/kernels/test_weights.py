import pytest
import torch

from vbdrop.functional import Convolution, MatrixProduct, noisy_product_reference, noisy_weights_reference
from vbdrop.kernels import kl_sum, noisy_weights
from vbdrop.priors import Hierarchical, log_alpha_of

THRESHOLDS = [None, 0.0]  # with the arguments of the cases, a good third of the weights is beyond 0


def value_and_gradients(function, a, product, threshold):
    out = function(a.x, a.theta, a.log_sigma2, a.bias, product, threshold, a.noise)
    return out.detach(), *torch.autograd.grad(out, (a.x, a.theta, a.log_sigma2, a.bias), a.grad)


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_the_fused_form_is_the_plain_formula_in_float64(case, threshold):
    a = case.arguments()
    fused, plain = (
        value_and_gradients(f, a, case.product, threshold) for f in (noisy_weights, noisy_weights_reference)
    )
    torch.testing.assert_close(fused, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_the_fused_form_is_the_plain_formula_in_float32(case, threshold):
    """Within 1e-5 of the largest entry."""
    a = case.arguments(torch.float32)
    fused = value_and_gradients(noisy_weights, a, case.product, threshold)
    plain = value_and_gradients(noisy_weights_reference, a, case.product, threshold)
    for f, p in zip(fused, plain, strict=True):
        assert (f - p).abs().max() <= 1e-5 * p.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", [noisy_weights, noisy_weights_reference])
def test_a_dead_weight_gives_its_noise_and_not_its_mean(some_case, function, dtype):
    a = some_case.arguments(dtype)
    dead = log_alpha_of(a.theta, a.log_sigma2).detach() >= 0
    assert 0.1 < dead.double().mean() < 0.9
    by_hand = noisy_product_reference(
        a.x, a.theta.detach() * ~dead, a.log_sigma2.detach().exp(), a.bias, some_case.product, a.noise
    )
    out, _, by_theta, by_log_sigma2, _ = value_and_gradients(function, a, some_case.product, 0.0)
    torch.testing.assert_close(out, by_hand.detach())
    assert (by_theta[dead] == 0).all()
    assert (by_theta[~dead] != 0).all()
    assert (by_log_sigma2 != 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_half_precision_has_finite_gradients_in_the_dtypes_of_the_parameters(some_case, threshold, dtype):
    a = some_case.arguments(torch.float32)
    x, theta, bias = (t.detach().to(dtype).requires_grad_() for t in (a.x, a.theta, a.bias))
    out = noisy_weights(x, theta, a.log_sigma2, bias, some_case.product, threshold)
    gradients = torch.autograd.grad(out.float().square().sum(), (x, theta, a.log_sigma2, bias))
    assert [out.dtype, *(g.dtype for g in gradients)] == [dtype, dtype, dtype, torch.float32, dtype]
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("log_sigma2", [-30.0, -10.0, 10.0])
@pytest.mark.parametrize("theta", [0.0, 1e-20, 1.0])
@pytest.mark.parametrize("threshold", [None, 3.0])
def test_float32_tails_have_finite_values_and_gradients(some_case, theta, log_sigma2, threshold):
    a = some_case.arguments(torch.float32)
    a.theta.data.fill_(theta)
    a.log_sigma2.data.fill_(log_sigma2)
    assert all(t.isfinite().all() for t in value_and_gradients(noisy_weights, a, some_case.product, threshold))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_arguments_are_left_alone(some_case, dtype):
    a = some_case.arguments(dtype)
    before = [tensor.detach().clone() for tensor in a]
    value_and_gradients(noisy_weights, a, some_case.product, 0.0)
    assert all(torch.equal(now, then) for now, then in zip(a, before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_frozen_means_and_frozen_variances_are_fine(some_case, dtype):
    for name in ("theta", "log_sigma2"):
        a = some_case.arguments(dtype)
        getattr(a, name).requires_grad_(False)
        noisy_weights(a.x, a.theta, a.log_sigma2, a.bias, some_case.product, 0.0).sum().backward()
        assert getattr(a, name).grad is None
        assert a.x.grad.isfinite().all()


def test_compiled_code_takes_the_plain_formula():
    """One that the compiler can see through: no graph break, and the same numbers."""
    x, theta, log_sigma2 = torch.randn(3, 4), torch.randn(2, 4, requires_grad=True), torch.randn(2, 4) - 3
    noise = torch.randn(3, 2)

    def sample(x):
        return noisy_weights(x, theta, log_sigma2, None, MatrixProduct(), 0.0, noise)

    compiled = torch.compile(sample, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), sample(x))
    (by_compiled,) = torch.autograd.grad(compiled(x).sum(), theta)
    (by_eager,) = torch.autograd.grad(sample(x).sum(), theta)
    torch.testing.assert_close(by_compiled, by_eager)


@pytest.mark.parametrize("function", [noisy_weights, noisy_weights_reference])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_layer_that_starts_at_zero_gets_a_gradient(function, dtype):
    theta = torch.zeros(3, 4, dtype=dtype, requires_grad=True)
    log_sigma2 = torch.full((3, 4), -80.0, dtype=dtype, requires_grad=True)
    out = function(torch.ones(2, 4, dtype=dtype), theta, log_sigma2, None, MatrixProduct(), 3.0)
    out.sum().backward()
    assert torch.equal(theta.grad, torch.full_like(theta, 2.0))


@pytest.mark.usefixtures("_kernels")
def test_images_in_either_order_of_memory_give_the_same():
    torch.manual_seed(0)
    product = Convolution((1, 1), (1, 1), (1, 1), output_padding=(0, 0))
    x, theta, noise = torch.randn(3, 4, 6, 6), torch.randn(5, 4, 3, 3), torch.randn(3, 5, 6, 6)
    log_sigma2 = torch.empty(5, 4, 3, 3).uniform_(-12, 4)
    results = []
    for order in (torch.contiguous_format, torch.channels_last):
        leaves = [t.to(memory_format=order).detach().requires_grad_() for t in (x, theta, log_sigma2)]
        out = noisy_weights(*leaves, None, product, 0.0, noise.to(memory_format=order))
        kl = kl_sum(*leaves[1:], Hierarchical())
        results.append([out.detach(), kl.detach(), *torch.autograd.grad(out.square().sum() + kl, leaves)])
        assert out.is_contiguous(memory_format=order)
    for usual, last in zip(*results, strict=True):
        torch.testing.assert_close(usual, last, rtol=1e-5, atol=1e-5 * usual.abs().max().item())


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("everything", [True, False])
def test_what_was_offloaded_may_come_back_in_another_order(order, everything):
    torch.manual_seed(0)
    leaves = [torch.randn(shape).to(memory_format=order).requires_grad_() for shape in ((5, 4, 3, 3), (5, 4, 3, 3))]
    x, noise = torch.randn(3, 4, 6, 6), torch.randn(3, 5, 4, 4)

    def gradients():
        out = noisy_weights(x, *leaves, None, Convolution((1, 1), (0, 0), (1, 1)), 3.0, noise)
        return torch.autograd.grad(out.square().sum(), leaves)

    def offload(tensor):
        return tensor.contiguous() if everything or tensor.data_ptr() == leaves[0].data_ptr() else tensor

    with torch.autograd.graph.saved_tensors_hooks(offload, lambda t: t):
        found = gradients()
    torch.testing.assert_close(found, gradients())


def test_a_convolution_that_was_replaced_after_the_forward_is_refused(switched_on):
    theta, log_sigma2 = torch.randn(8, 3, 3, 3, requires_grad=True), torch.zeros(8, 3, 3, 3, requires_grad=True)
    product = Convolution((1, 1), (0, 0), (1, 1))
    out = noisy_weights(torch.randn(2, 3, 6, 6), theta, log_sigma2, None, product, 3.0)
    theta.data, log_sigma2.data = theta.data[:1].clone(), log_sigma2.data[:1].clone()
    with pytest.raises(RuntimeError, match="replaced between forward and backward"):
        out.sum().backward()
