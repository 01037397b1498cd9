"""The mixture of soft weight-sharing against torch.distributions, its gradient, merging and quantising."""

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal, kl_divergence

from vbdrop.methods.shared.gaussian_mixture import PIECE, Components, divergences, merged, mixture_nll, quantised


def mixture(dtype=torch.float64) -> Components:
    generator = torch.Generator().manual_seed(0)
    shares = torch.tensor([0.9, 0.04, 0.03, 0.03], dtype=dtype)
    means = torch.tensor([0.0, -0.3, 0.1, 0.5], dtype=dtype)
    precisions = torch.rand(4, generator=generator, dtype=dtype) * 900 + 100
    return Components(shares.log(), means, precisions)


def reference(weights, components):
    normals = Normal(components.means, components.precisions.rsqrt())
    return -MixtureSameFamily(Categorical(logits=components.log_shares), normals).log_prob(weights).sum()


@pytest.mark.parametrize("count", [1, 100, PIECE + 7])
def test_the_value_is_that_of_the_distribution(count):
    weights = torch.randn(count, dtype=torch.float64) * 0.3
    torch.testing.assert_close(mixture_nll(weights, mixture()), reference(weights, mixture()))


def test_the_gradients_are_right():
    weights = (torch.randn(12, dtype=torch.float64) * 0.3).requires_grad_()
    leaves = [value.clone().requires_grad_() for value in mixture()]
    assert torch.autograd.gradcheck(lambda w, *parts: mixture_nll(w, Components(*parts)), (weights, *leaves))
    ours = torch.autograd.grad(mixture_nll(weights, Components(*leaves)) * 3, [weights, *leaves[1:]])
    theirs = torch.autograd.grad(reference(weights, Components(*leaves)) * 3, [weights, *leaves[1:]])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_it_stays_finite_in_float32_where_densities_vanish():
    sharp = Components(torch.tensor([0.999, 0.001]).log(), torch.tensor([0.0, 0.5]), torch.tensor([1e5, 1e5]))
    weights = torch.tensor([0.0, 3.0, -3.0], requires_grad=True)
    value = mixture_nll(weights, sharp)
    (gradient,) = torch.autograd.grad(value, weights)
    assert value.isfinite()
    torch.testing.assert_close(gradient, torch.tensor([0.0, 2.5e5, -3e5]), rtol=1e-3, atol=1e-3)


def test_the_divergences_are_those_of_the_distributions():
    _, means, precisions = mixture()
    normal = Normal(means[:, None], precisions[:, None].rsqrt()), Normal(means[None], precisions[None].rsqrt())
    torch.testing.assert_close(divergences(mixture()), kl_divergence(*normal))


def test_components_that_are_the_same_are_merged_with_their_shares():
    shares = torch.tensor([0.5, 0.3, 0.2])
    three = Components(shares.log(), torch.tensor([0.0, 0.4, 0.4]), torch.tensor([100.0, 50.0, 50.0]))
    two = merged(three, 1e-10)
    torch.testing.assert_close(two.log_shares.exp(), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(two.means, torch.tensor([0.0, 0.4]))
    torch.testing.assert_close(two.precisions, torch.tensor([100.0, 50.0]))
    assert len(merged(three, 1e9).means) == 1
    assert len(merged(mixture(), 1e-10).means) == 4


def test_the_component_nearest_to_zero_is_put_there():
    near = Components(torch.tensor([0.5, 0.5]).log(), torch.tensor([0.01, 0.4]), torch.ones(2))
    assert merged(near, 1e-10).means.tolist() == [0.0, pytest.approx(0.4)]


def test_a_weight_takes_the_mean_of_its_most_likely_component():
    weights = torch.linspace(-1, 1, PIECE + 11, dtype=torch.float64)
    log_shares, means, precisions = mixture()
    scores = log_shares + Normal(means, precisions.rsqrt()).log_prob(weights[:, None])
    assert torch.equal(quantised(weights, mixture()), means[scores.argmax(1)])
