import pytest
import torch

from vbdrop.kernels import KLTerm, kl_sum, kl_total
from vbdrop.priors import PRIORS, Hierarchical, LogUniform


@pytest.fixture(params=PRIORS)
def prior(request):
    return PRIORS[request.param]()


def weights(dtype=torch.float64):
    theta, log_sigma2 = torch.randn(7, 5, dtype=dtype), torch.empty(7, 5, dtype=dtype).uniform_(-12, 4)
    return theta.requires_grad_(), log_sigma2.requires_grad_()


def gradients(loss, *leaves):
    return torch.autograd.grad(loss, leaves)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_value_and_gradient_are_those_of_the_summed_formula(prior, dtype, tolerance):
    leaves = weights(dtype)
    fused, plain = kl_sum(*leaves, prior), prior.kl(*leaves).sum()
    torch.testing.assert_close(fused, plain, rtol=tolerance, atol=tolerance)
    found, expected = gradients(fused, *leaves), gradients(plain, *leaves)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_the_gradients_agree_with_finite_differences(prior):
    theta = torch.tensor([0.7, -1.3], dtype=torch.float64, requires_grad=True)
    log_sigma2 = torch.tensor([-2.0, 1.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t, s: kl_sum(t, s, prior), (theta, log_sigma2))


@pytest.mark.usefixtures("_kernels")
def test_it_is_a_sum_and_not_a_mean():
    one = kl_sum(torch.ones(1), torch.zeros(1), Hierarchical()).item()
    assert kl_sum(torch.ones(10), torch.zeros(10), Hierarchical()).item() == pytest.approx(10 * one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_scales_with_what_comes_in(prior, dtype):
    leaves = weights(dtype)
    plain = gradients(kl_sum(*leaves, prior), *leaves)
    scaled = gradients(-0.25 * kl_sum(*leaves, prior), *leaves)
    torch.testing.assert_close(scaled, tuple(-0.25 * g for g in plain), rtol=1e-6, atol=0)


def test_using_the_kl_twice_counts_twice(prior):
    leaves = weights()
    kl = kl_sum(*leaves, prior)
    once = gradients(kl, *leaves)
    again = kl_sum(*leaves, prior)
    torch.testing.assert_close(gradients(3 * again + again, *leaves), tuple(4 * g for g in once))
    torch.testing.assert_close(
        gradients(kl_sum(*leaves, prior) + kl_sum(*leaves, prior), *leaves), tuple(2 * g for g in once)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_accumulate_over_backwards(prior, dtype):
    leaves = weights(dtype)
    once = gradients(kl_sum(*leaves, prior), *leaves)
    for _ in range(3):
        kl_sum(*leaves, prior).backward()
    torch.testing.assert_close([leaf.grad for leaf in leaves], [3 * g for g in once])


def test_a_graph_that_is_kept_gives_the_same_gradient_again(prior):
    leaves = weights()
    kl = kl_sum(*leaves, prior)
    first = torch.autograd.grad(kl, leaves, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(kl, leaves), first, rtol=0, atol=0)


def test_the_gradient_of_another_loss_knows_nothing_of_the_kl(prior):
    theta, log_sigma2 = weights()
    kl = kl_sum(theta, log_sigma2, prior)
    assert (gradients((2 * theta).sum(), theta)[0] == 2).all()
    assert theta.grad is None
    ((2 * theta).sum() + kl).backward()
    expected = 2 + torch.autograd.grad(prior.kl(theta, log_sigma2).sum(), theta)[0]
    torch.testing.assert_close(theta.grad, expected, rtol=1e-10, atol=1e-10)


def test_means_in_half_precision_get_a_kl_in_float32(prior):
    theta, log_sigma2 = weights(torch.float32)
    narrow = theta.detach().to(torch.bfloat16).requires_grad_()
    kl = kl_sum(narrow, log_sigma2, prior)
    kl.backward()
    expected = prior.kl(narrow.detach().float(), log_sigma2).sum()
    assert kl.dtype == torch.float32
    torch.testing.assert_close(kl, expected, rtol=1e-5, atol=1e-5)
    assert (narrow.grad.dtype, log_sigma2.grad.dtype) == (torch.bfloat16, torch.float32)


def test_autocast_does_not_narrow_it(prior):
    leaves = weights(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        inside = kl_sum(*leaves, prior)
    assert torch.equal(inside, kl_sum(*leaves, prior))


@pytest.mark.usefixtures("_kernels")
def test_float32_tails_have_finite_values_and_gradients(prior):
    theta, log_sigma2 = torch.cartesian_prod(
        torch.tensor([0.0, 1e-25, -1e-3, 10.0]), torch.linspace(-30, 10, 41)
    ).T.contiguous()
    leaves = theta.requires_grad_(), log_sigma2.requires_grad_()
    kl = kl_sum(*leaves, prior)
    assert kl.isfinite()
    assert all(g.isfinite().all() for g in gradients(kl, *leaves))


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_is_frozen_gets_no_gradient(prior, frozen):
    leaves = weights()
    expected = gradients(kl_sum(*leaves, prior), *leaves)
    leaves[frozen].requires_grad_(False)
    kl_sum(*leaves, prior).backward()
    assert leaves[frozen].grad is None
    torch.testing.assert_close(leaves[1 - frozen].grad, expected[1 - frozen])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_parameters_are_left_alone(prior, dtype):
    leaves = weights(dtype)
    before = [leaf.detach().clone() for leaf in leaves]
    (kl_sum(*leaves, prior) * 7).backward()
    assert all(torch.equal(now, then) for now, then in zip(leaves, before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("frozen", [None, 0, 1])
def test_a_second_derivative_is_that_of_the_summed_formula(prior, frozen, dtype):
    leaves = [leaf.requires_grad_(i != frozen) for i, leaf in enumerate(weights(dtype))]
    moving = [leaf for leaf in leaves if leaf.requires_grad]

    def curvature(kl):
        slopes = torch.autograd.grad(2 * kl, moving, create_graph=True)
        return torch.autograd.grad(sum(slope.square().sum() for slope in slopes), moving)

    found, expected = curvature(kl_sum(*leaves, prior)), curvature(prior.kl(*leaves).sum())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-9)


def test_compiled_code_gives_the_same_value_and_gradient(prior):
    leaves = weights()
    compiled = torch.compile(lambda t, s: kl_sum(t, s, prior), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*leaves), kl_sum(*leaves, prior), rtol=1e-10, atol=1e-10)
    found = gradients(compiled(*leaves), *leaves)
    torch.testing.assert_close(found, gradients(kl_sum(*leaves, prior), *leaves), rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_tensors_add_up_each_with_its_prior_and_its_factor(dtype):
    priors = [Hierarchical(), LogUniform(), Hierarchical(), LogUniform()]
    factors = [1.0, 0.5, torch.linspace(0, 2, 5, dtype=dtype), torch.tensor(3.0, dtype=dtype)]
    leaves = [leaf for _ in priors for leaf in weights(dtype)]
    leaves[2].requires_grad_(False)
    moving = [leaf for leaf in leaves if leaf.requires_grad]
    terms = [KLTerm(*term) for term in zip(priors, factors, strict=True)]
    scaled, total = kl_total(terms, leaves, scale=-0.125)
    pairs = zip(leaves[::2], leaves[1::2], strict=True)
    expected = sum((p.kl(*pair) * f).sum() for p, f, pair in zip(priors, factors, pairs, strict=True))
    torch.testing.assert_close((scaled, total), (-0.125 * expected, expected), rtol=1e-5, atol=1e-5)
    assert not total.requires_grad
    found = gradients(scaled, *moving)
    torch.testing.assert_close(found, gradients(-0.125 * expected, *moving), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("_kernels")
def test_values_without_gradients_need_none(prior):
    leaves = weights(torch.float32)
    with torch.no_grad():
        alone = kl_sum(*leaves, prior)
    assert not alone.requires_grad
    torch.testing.assert_close(alone, kl_sum(*leaves, prior).detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_can_be_transformed(prior, dtype):
    """By `torch.func`, whose functions see the operations of the formula."""
    theta, log_sigma2 = (leaf.detach() for leaf in weights(dtype))
    by_theta = torch.func.vmap(torch.func.grad(lambda t, s: kl_sum(t, s, prior)))(theta, log_sigma2)
    leaves = theta.requires_grad_(), log_sigma2.requires_grad_()
    torch.testing.assert_close(by_theta, gradients(prior.kl(*leaves).sum(), theta)[0], rtol=1e-4, atol=1e-6)
