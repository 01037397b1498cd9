"""One pass against 1,000 samples."""

import pytest
import torch
from tests.stress import count
from torch import nn
from torch.nn.functional import dropout, relu

from vbdrop import Units, Weights, convert_, predict, sampling
from vbdrop.layers import Gate, Variational
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


@pytest.mark.stress
@pytest.mark.parametrize("case", list(CASES)[: count(4, 5)])
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


class Loud(Gate):
    def forward(self, x):
        return 3 * super().forward(x)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return dropout(self.layer(x), 0.9)


class Squared(nn.Module):
    def forward(self, x):
        return x**2


class Doubled(nn.Module):
    def forward(self, x):
        return torch.cat([x, x], axis=1)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(Attention(), nn.ReLU()), "no rule for softmax in '0.scores'; use method='samples'"),
        (nn.Sequential(nn.Linear(4, 4), OwnNoise()), "no rule for OwnNoise in '1'"),
        (nn.Sequential(nn.Linear(4, 4), nn.Flatten(), nn.LayerNorm(4)), "no rule for layer_norm in '2'"),
        (nn.Sequential(nn.Linear(4, 4), Loud(4, -1, Units(), torch.ones(1))), "no rule for the forward of Loud in '1'"),
        (nn.Sequential(nn.Linear(4, 4), Squared()), "no rule for __pow__ in '1'"),
        (nn.Sequential(nn.Linear(4, 4), Doubled()), "no rule for cat with these arguments in '1'"),
        (nn.Sequential(Dropping()), "no rule for dropout that is on in '0'"),
        (
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)),
            "no rule for batch_norm with batch statistics in '1'",
        ),
    ],
)
def test_what_has_no_rule_is_named_with_its_module(model, said):
    convert_(model.eval(), Weights())
    with pytest.raises(NoRuleError, match=said):
        propagate_moments(model, torch.ones(2, 4))
    first = model[0] if isinstance(model[0], nn.Linear) else model[0].layer
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


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_gate_that_stands_alone_has_its_part(first, agree):
    """On known numbers and on noisy ones; 4000 samples, seed 0."""
    torch.manual_seed(0)
    gate, layer = Gate(6, -1, Units(log_sigma2=-1.0, threshold=50.0), torch.ones(1).double()), nn.Linear(6, 6).double()
    model, x = nn.Sequential(gate, layer) if first else nn.Sequential(layer, gate), torch.randn(3, 6).double()
    convert_(model.eval(), Weights(log_sigma2=-3.0, threshold=50.0))
    with torch.no_grad(), sampling(model):
        draws = model(x.repeat(4000, 1)).unflatten(0, (4000, 3))
        found, again = propagate_moments(model, x), propagate_moments(model, x)
    assert torch.equal(found.mean_, again.mean_)
    agree(found, draws)
    assert "forward" not in gate.__dict__


def test_a_layer_whose_forward_was_replaced_has_no_rule():
    model = nn.Sequential(nn.Linear(4, 4))
    convert_(model, Weights())
    own = model[0].forward = lambda x: 3 * x
    with pytest.raises(NoRuleError, match="no rule for the forward of Linear in '0'"):
        propagate_moments(model, torch.ones(2, 4))
    assert model[0].__dict__["forward"] is own


class InPlace(nn.Module):
    """Uses the old names of values that are changed in place."""

    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 8), nn.LeakyReLU(0.1, inplace=True), nn.Linear(8, 3)

    def forward(self, x):
        hidden = old = self.first(x)
        hidden += 1.0
        self.act(hidden[:, :4])
        return self.last(old)


def test_values_that_are_changed_in_place(agree):
    """4000 samples, seed 0."""
    torch.manual_seed(0)
    model, x = InPlace().double().eval(), torch.randn(3, 4).double()
    convert_(model, Weights(log_sigma2=-3.0, threshold=50.0))
    with torch.no_grad(), sampling(model):
        draws = model(x.repeat(4000, 1)).unflatten(0, (4000, 3))
    agree(propagate_moments(model, x), draws)


def test_a_layer_may_be_called_by_keyword():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.gate = nn.Linear(4, 3), Gate(3, -1, Units(), torch.ones(1))

        def forward(self, x):
            return self.gate(x=self.layer(input=x))

    model, x = Named().eval(), torch.randn(2, 4)
    convert_(model, Weights(threshold=50.0))
    torch.testing.assert_close(propagate_moments(model, x).mean_, model(x).detach())


@pytest.mark.parametrize("by_name", [False, True])
def test_a_transposed_convolution_gives_the_size_that_was_asked_for(by_name):
    class Upsampling(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.ConvTranspose1d(2, 3, 3, stride=2)

        def forward(self, x):
            return self.layer(x, output_size=[8]) if by_name else self.layer(x, [8])

    torch.manual_seed(0)
    model, x = Upsampling().eval(), torch.randn(2, 2, 3)
    convert_(model, Weights(threshold=50.0))
    found = propagate_moments(model, x)
    assert found.shape == (2, 3, 8)
    torch.testing.assert_close(found.mean_, model(x).detach())
    assert predict(model, x, link=nn.Identity()).mean.shape == (2, 3, 8)
