"""One pass against 1,000 samples."""

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from vbdrop import Units, Weights, convert_, predict
from vbdrop.layers import Variational
from vbdrop.models import MLP, KingmaCNN, LeNet5
from vbdrop.moments import NoRuleError, propagate_moments


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(30, 40), nn.Linear(40, 40)
        self.norm, self.last = nn.BatchNorm1d(40), nn.Linear(40, 10)

    def forward(self, x):
        x = relu(self.norm(self.first(x)))
        return self.last(x + relu(self.second(x)))


CASES = {  # network, inputs, mode, by how much deviations may be off on average
    "mlp, weights": (lambda: MLP([100, 50], inputs=30), (30,), Weights(log_sigma2=-5.0, threshold=50.0), 0.05),
    "mlp, gates": (lambda: MLP([100, 50], inputs=30), (30,), Units(log_sigma2=-2.0, threshold=50.0), 0.1),
    "residual, weights": (Residual, (30,), Weights(log_sigma2=-5.0, threshold=50.0), 0.05),
    "lenet-5, weights": (LeNet5, (1, 28, 28), Weights(log_sigma2=-6.0, threshold=50.0), 0.2),
    "kingma, weights": (lambda: KingmaCNN(scale=0.25), (3, 32, 32), Weights(log_sigma2=-6.0, threshold=50.0), 0.05),
}


@pytest.mark.parametrize("case", CASES)
def test_means_and_deviations_are_near_those_of_1000_samples(case):
    """Seed 0. Means are off by no more than the samples' own error, 0.03 deviations, deviations as the table says."""
    build, shape, mode, share = CASES[case]
    torch.manual_seed(0)
    model = build().eval()
    convert_(model, mode)
    x = torch.rand(4, *shape)
    samples = predict(model, x, 1000, nn.Identity())
    found = propagate_moments(model, x)
    off = ((found.mean_ - samples.mean).abs() / samples.std).mean().item()
    ratio = (found.variance.sqrt() / samples.std - 1).abs().mean().item()
    assert off < 0.05
    assert ratio < share


def test_without_noise_it_is_the_forward_itself():
    torch.manual_seed(0)
    model = LeNet5().eval()
    convert_(model, Weights())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("log_sigma2"):
                parameter.fill_(-40.0)
    x = torch.rand(4, 1, 28, 28)
    found = propagate_moments(model, x)
    torch.testing.assert_close(found.mean_, model(x).detach(), atol=1e-4, rtol=1e-4)
    assert found.variance.max() < 1e-6


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scores = nn.Softmax(-1)

    def forward(self, x):
        return self.scores(self.layer(x))


class OwnNoise(Variational):
    def variational(self):
        yield from ()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(Attention(), nn.ReLU()), "no rule for softmax in '0.scores'; use method='samples'"),
        (nn.Sequential(nn.Linear(4, 4), OwnNoise()), "no rule for OwnNoise in '1'"),
        (nn.Sequential(nn.Linear(4, 4), nn.Flatten(), nn.LayerNorm(4)), "no rule for layer_norm in '2'"),
    ],
)
def test_what_has_no_rule_is_named_with_its_module(model, said):
    convert_(model, Weights())
    with pytest.raises(NoRuleError, match=said):
        propagate_moments(model, torch.ones(2, 4))
    first = model[0].layer if isinstance(model[0], Attention) else model[0]
    assert "forward" not in first.__dict__
    assert not first._forward_hooks
    assert first(torch.ones(2, 4)).shape == (2, 4)


def test_an_output_that_is_no_tensor_is_named():
    class Pair(nn.Linear):
        def forward(self, x):
            return x, x

    with pytest.raises(NoRuleError, match="an output of type tuple"):
        propagate_moments(nn.Sequential(Pair(2, 2)), torch.ones(1, 2))


def test_a_model_without_noise_has_no_variance():
    assert propagate_moments(nn.Linear(2, 2), torch.ones(3, 2)).variance.tolist() == [[0.0, 0.0]] * 3
