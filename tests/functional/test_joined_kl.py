"""The KL that comes with a forward is the KL, once, and only while it is true."""

import copy
import pickle

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.functional import JoinedKL, MatrixProduct, native, noisy_gates, noisy_weights, noisy_weights_reference
from vbdrop.objective.divergence import joined_kl
from vbdrop.priors import Hierarchical


@pytest.fixture(autouse=True)
def _kernels(compiler):
    assert native.library() is not None, "there is a C compiler, so the kernels must build"


def weights(shape=(20, 33)):
    theta = (torch.randn(shape) * 0.1).requires_grad_()
    return theta, torch.empty(shape).uniform_(-12, 2).requires_grad_()


def network(*modes):
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    vbdrop.convert_(model, *modes)
    return model


def test_output_and_kl_together_are_those_of_the_plain_formulas():
    x, bias, noise = (torch.randn(s, requires_grad=True) for s in ((7, 33), (20,), (7, 20)))
    theta, log_sigma2 = weights()
    joined = JoinedKL()
    ours = noisy_weights(x, theta, log_sigma2, bias, MatrixProduct(), 3.0, noise.detach(), joined)
    kl = joined.take(theta, log_sigma2)
    plain = noisy_weights_reference(x, theta, log_sigma2, bias, MatrixProduct(), 3.0, noise.detach())
    true = Hierarchical().kl(theta, log_sigma2).sum()
    torch.testing.assert_close((ours, kl), (plain, true), rtol=1e-5, atol=1e-5)
    leaves = (x, theta, log_sigma2, bias)
    for pair, exact in ((ours.square().sum() + 0.3 * kl, plain.square().sum() + 0.3 * true), (kl, true)):
        found = torch.autograd.grad(pair, leaves, retain_graph=True, materialize_grads=True)
        expected = torch.autograd.grad(exact, leaves, retain_graph=True, materialize_grads=True)
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("modes", [[vbdrop.Weights()], [vbdrop.Units()], [vbdrop.Weights(), vbdrop.Units()]])
def test_a_model_gives_it_once_for_each_forward(modes):
    model, x = network(*modes), torch.randn(4, 6)
    out = model(x)
    first, second = joined_kl(model), joined_kl(model)
    torch.testing.assert_close(first, vbdrop.kl(model))
    torch.testing.assert_close(second, first)
    (out.sum() + first).backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    second.backward()  # has a graph of its own
    after = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    vbdrop.kl(model).backward()
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(after[name] - before[name], p.grad, rtol=1e-3, atol=1e-4)


def test_what_changed_since_the_forward_is_not_taken():
    model = network(vbdrop.Weights())
    model(torch.randn(4, 6))
    with torch.no_grad():
        model[0].weight.mul_(3.0)
        model[2].log_sigma2.add_(1.0)
    torch.testing.assert_close(joined_kl(model), vbdrop.kl(model))
    model(torch.randn(4, 6))
    model[0].weight.data = model[0].weight.data * 3.0
    torch.testing.assert_close(joined_kl(model), vbdrop.kl(model))


def test_nothing_is_left_without_gradients_or_inside_a_backward():
    theta, log_sigma2 = weights((2, 3))
    joined = JoinedKL()
    with torch.no_grad():
        noisy_weights(torch.ones(1, 3), theta, log_sigma2, None, MatrixProduct(), 3.0, None, joined)
    assert joined.take(theta, log_sigma2) is None

    class Inside(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            with torch.enable_grad():
                noisy_weights(torch.ones(1, 3), theta, log_sigma2, None, MatrixProduct(), 3.0, None, joined)
            return grad

    Inside.apply(torch.ones(1, requires_grad=True)).backward()
    assert joined.take(theta, log_sigma2) is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_a_model_start_without(copied):
    model = network(vbdrop.Weights(), vbdrop.Units())
    model(torch.randn(4, 6))
    other = copied(model)
    torch.testing.assert_close(joined_kl(other), vbdrop.kl(model))


def test_the_nll_alone_can_be_differentiated_before_the_kl_that_is_computed_apart():
    model = network(vbdrop.Weights())
    out = model(torch.randn(4, 6))
    divergence = vbdrop.kl(model)
    out.sum().backward()
    divergence.backward()
    assert model[0].log_sigma2.grad.isfinite().all()


def test_gradients_accumulate_over_several_batches():
    torch.manual_seed(0)
    model = network(vbdrop.Weights())
    elbo = vbdrop.ELBO(model, n_train=10)
    for _ in range(3):
        elbo(model(torch.zeros(4, 6)).sum() * 0.0).backward()
    accumulated = model[0].log_sigma2.grad.clone()
    model.zero_grad()
    (vbdrop.kl(model) * 3 / 10).backward()
    torch.testing.assert_close(accumulated, model[0].log_sigma2.grad, rtol=1e-5, atol=1e-8)


def losses(model, *batches):
    return [nn.functional.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long)) for x in batches]


def gradients_of(model, loss):
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


BOTH = pytest.mark.parametrize("mode", [vbdrop.Weights(), vbdrop.Units()], ids=["weights", "units"])


@BOTH
def test_two_forwards_before_their_losses_have_each_its_own(mode):
    model, batches = network(mode), torch.randn(2, 4, 6)
    elbo = vbdrop.ELBO(model, n_train=10)
    torch.manual_seed(3)
    expected = [gradients_of(model, nll + vbdrop.kl(model) / 10) for nll in losses(model, *batches)]
    torch.manual_seed(3)
    found = [gradients_of(model, elbo(nll)) for nll in losses(model, *batches)]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@BOTH
def test_the_kl_of_a_forward_that_has_been_differentiated_is_not_taken(mode):
    model, batches = network(mode), torch.randn(2, 4, 6)
    torch.manual_seed(3)
    for nll in losses(model, *batches):
        nll.backward()
    vbdrop.ELBO(model, n_train=10)(torch.zeros(())).backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.manual_seed(3)
    sum(losses(model, *batches), vbdrop.kl(model) / 10).backward()
    torch.testing.assert_close(found, [p.grad for p in model.parameters()], rtol=1e-4, atol=1e-5)


def test_a_fused_optimizer_changes_the_kl_though_no_version_tells():
    model = network(vbdrop.Weights())
    elbo = vbdrop.ELBO(model, n_train=10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5, fused=True)
    (nll,) = losses(model, torch.randn(4, 6))
    nll.backward()
    optimizer.step()
    model.eval()
    elbo(losses(model, torch.randn(4, 6))[0])
    torch.testing.assert_close(elbo.terms.kl, vbdrop.kl(model))


def test_a_forward_that_leaves_none_takes_that_of_the_one_before_away():
    mean, log_sigma2 = weights((5,))
    joined = JoinedKL()
    images = torch.randn(2, 5, 3, 3)
    noisy_gates(images, mean, log_sigma2, -3, None, None, joined)
    noisy_gates(images.to(memory_format=torch.channels_last), mean, log_sigma2, -3, None, None, joined)
    assert joined.take(mean, log_sigma2) is None
    theta, log_sigma2 = weights((2, 3))
    noisy_weights(torch.ones(1, 3), theta, log_sigma2, None, MatrixProduct(), 3.0, None, joined)
    noisy_weights(torch.ones(1, 3), theta, log_sigma2, None, MatrixProduct(), None, None, joined)
    assert joined.take(theta, log_sigma2) is None


def test_steps_with_and_without_the_kl_in_turn_leave_it_for_the_next():
    theta, log_sigma2 = weights((2, 3))
    joined, arguments = JoinedKL(), (torch.ones(1, 3), theta, log_sigma2, None, MatrixProduct(), 3.0, None)
    noisy_weights(*arguments, joined).sum().backward()
    out = noisy_weights(*arguments, joined)
    kl = joined.take(theta, log_sigma2)
    assert kl is not None
    (out.sum() + kl).backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_kl_is_in_the_dtype_of_the_parameters_whatever_the_default_is(dtype):
    model, gated = network(vbdrop.Weights()), network(vbdrop.Units())
    torch.set_default_dtype(dtype)
    try:
        for each in (model, gated):
            each(torch.randn(4, 6, dtype=torch.float32))
            assert joined_kl(each).dtype is torch.float32
            assert vbdrop.kl(each).dtype is torch.float32
        vd = network(vbdrop.Weights(prior="log_uniform")).float()
        assert vbdrop.kl(vd).dtype is torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
