import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vbdrop.moments import NoRuleError
from vbdrop.moments.products import known_product, normalised, product


def test_noisy_weights_times_noisy_inputs(normal, agree):
    x, inputs = normal(3, 5, seed=1)
    w, weights = normal(4, 5, seed=2)
    bias = torch.randn(4, dtype=torch.float64)
    agree(product(F.linear, x, w.mean_, bias, w.variance), torch.einsum("nbi,noi->nbo", inputs, weights) + bias)
    agree(product(F.linear, inputs[0], w.mean_, None, w.variance), torch.einsum("bi,noi->nbo", inputs[0], weights))
    agree(product(F.linear, x, w.mean_, bias, None), F.linear(inputs, w.mean_, bias))


def test_a_convolution_with_known_weights(normal, agree):
    x, draws = normal(2, 3, 5, 5, draws=4000)
    weight, bias = torch.randn(4, 3, 3, 3).double(), torch.randn(4).double()
    expected = F.conv2d(draws.flatten(0, 1), weight, bias, 2, 1).unflatten(0, draws.shape[:2])
    agree(known_product(F.conv2d)(x, weight, bias, 2, 1), expected)


def test_batch_normalisation(normal, agree):
    for norm, shape in ((nn.BatchNorm1d(3), (2, 3)), (nn.BatchNorm2d(3, affine=False), (2, 3, 2, 2))):
        x, draws = normal(*shape)
        norm = norm.double().eval()
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
        if norm.affine:
            nn.init.normal_(norm.weight)
        expected = norm(draws.flatten(0, 1)).unflatten(0, draws.shape[:2]).detach()
        agree(normalised(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps), expected)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False).eval()])
def test_batch_normalisation_by_the_batch_has_no_rule(norm, normal):
    x, _ = normal(2, 3, draws=1)
    with pytest.raises(NoRuleError, match="batch_norm with batch statistics"):
        norm(x)
