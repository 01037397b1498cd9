"""Several samples in one forward are those of several forwards."""

import math

import pytest
import torch
from tests.prediction.networks import linear
from torch import nn

import vbdrop.layers
from vbdrop import Rates, Units, Weights, convert_, predict, sampling
from vbdrop.functional import MatrixProduct
from vbdrop.layers import LAYERS, Gate, NoisyLayer, Variational
from vbdrop.models import MLP, LeNet5
from vbdrop.moments import NoRuleError


class BatchSize(nn.Module):
    """Asks for the size of its batch before the noise, and uses it after it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 4)

    def forward(self, x):
        return self.fc(x).view(x.shape[0], 2, 2).flatten(1)


class Residual(BatchSize):
    def forward(self, x):
        return self.fc(x) + x[:, :4]


class TestSharedProducts:
    """What comes before the first noise is computed once for all samples."""

    @pytest.mark.parametrize(
        ("model", "modes"),
        [
            (nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), [Weights(threshold=50.0)]),
            (nn.Sequential(nn.Conv2d(1, 4, 3, padding="same"), nn.AdaptiveAvgPool2d(1), nn.Flatten()), [Rates()]),
            (nn.Sequential(nn.Conv2d(1, 4, 4), nn.Flatten()), [Units(outputs=lambda module, name: True)]),
            (nn.Sequential(nn.ConvTranspose2d(1, 4, 1), nn.Flatten(), nn.Linear(64, 4)), [Weights(threshold=50.0)]),
        ],
        ids=["linear", "conv", "gates", "transposed"],
    )
    def test_the_samples_have_the_distribution_of_single_forwards(self, model, modes):
        """n = 3000 samples each, seed 0: means within 6 standard errors, deviations within 10 %."""
        torch.manual_seed(0)
        convert_(model.eval(), *modes)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("log_sigma2"):
                    parameter.fill_(-2.0)
        x, n = torch.randn(3, 1, 4, 4), 3000
        shared = predict(model, x, n, nn.Identity())
        with torch.no_grad(), sampling(model):
            alone = torch.stack([model(x) for _ in range(n)])
        deviation = alone.std(0)
        assert ((shared.mean - alone.mean(0)).abs() < 6 * deviation * math.sqrt(2 / n)).all()
        assert ((shared.std / deviation - 1).abs() < 0.1).all()

    def test_the_products_of_the_first_layer_are_done_once(self):
        layer, seen = linear(), []
        layer.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
        found = predict(nn.Sequential(nn.Flatten(), layer), torch.randn(6, 5), samples=10, keep_samples=True)
        assert seen == [6]
        assert found.samples.shape == (10, 6, 3)
        assert found.samples.unique(dim=0).shape[0] == 10
        assert "forward" not in layer.__dict__

    @pytest.mark.parametrize("kind", [BatchSize, Residual])
    def test_a_model_that_needs_its_batch_is_run_on_repeated_inputs(self, kind):
        torch.manual_seed(0)
        model, x = kind(), torch.randn(6, 5)
        convert_(model, Weights())
        expected = model.eval()(x)
        found = predict(model, x, samples=400, link=nn.Identity())
        torch.testing.assert_close(found.mean, expected, atol=0.02, rtol=0)
        assert (found.std > 0).all()

    def test_a_second_branch_from_the_inputs_is_multiplied_too(self):
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(5, 4), nn.Linear(5, 4)

            def forward(self, x):
                return self.a(x) + self.b(x)

        torch.manual_seed(0)
        model, seen = Branches(), []
        convert_(model, Weights())
        model.b.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
        predict(model, torch.randn(6, 5), samples=7)
        assert seen == [6]


class Encoder(nn.Module):
    """A transformer layer as torch makes it by default: the time comes first."""

    def __init__(self):
        super().__init__()
        self.encoder, self.last = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.encoder(x.transpose(0, 1)).mean(0))


class TwoLayers(nn.Module):
    """A noisy layer, and a last one whose noise the tests switch off."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)


class Patches(TwoLayers):
    def forward(self, x):
        hidden = torch.tanh(self.first(x.reshape(-1, 8)))
        return self.last(hidden.reshape(-1, x.shape[1], 8).mean(1))


class TimeFirst(TwoLayers):
    def forward(self, x):
        return self.last(torch.tanh(self.first(x.transpose(0, 1))).mean(0))


class TimeFirstForAWhile(TwoLayers):
    """Every position is classified by itself, as a row of its own."""

    def forward(self, x):
        hidden = torch.tanh(self.first(x.transpose(0, 1))).transpose(0, 1)
        return self.last(hidden.reshape(-1, 8)).reshape(-1, x.shape[1], 3).mean(1)


class TimeFirstLater(TwoLayers):
    """A noisy layer in the usual order, and then one with the time first."""

    def __init__(self):
        super().__init__()
        self.usual = nn.Linear(8, 8)

    def forward(self, x):
        return self.last(torch.tanh(self.first(self.usual(x).transpose(0, 1))).mean(0))


class Pooled(TwoLayers):
    """Takes the size of the batch from the inputs, and shapes the noisy values by it."""

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)).view(x.shape[0], -1, 8).mean(1))


class SpatialSoftmax(TwoLayers):
    def forward(self, x):
        hidden = self.first(x)
        return self.last((3 * hidden.reshape(x.shape[0], -1).softmax(1).view_as(hidden)).sum(1))


class Beside(TwoLayers):
    """The second branch has its rows in the batch, and one example broadcasts."""

    def __init__(self):
        super().__init__()
        self.side = nn.Linear(8, 8)

    def forward(self, x):
        patches = torch.tanh(self.first(x.reshape(-1, 8))).reshape(-1, x.shape[1], 8).mean(1)
        return self.last(0.1 * self.side(x.mean(1)) + patches)


class GateAlone(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.last = Gate(8, -1, Units(log_sigma2=-1.0), torch.ones(1)), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.gate(x).mean(1))


class ExamplesBehindUnits(nn.Module):
    """A gate is one for all positions, and here the examples are positions."""

    def __init__(self):
        super().__init__()
        self.gate, self.last = Gate(8, -2, Units(log_sigma2=-1.0), torch.ones(1)), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.gate(x.mean(1).T.unsqueeze(0)).squeeze(0).T)


class Table(nn.Module):
    """Compares its inputs with a noisy map of a learned table, whose rows are no examples."""

    def __init__(self, rows):
        super().__init__()
        self.table, self.keys, self.last = nn.Parameter(torch.randn(rows, 8)), nn.Linear(8, 8), nn.Linear(rows, 3)

    def forward(self, x):
        return self.last(torch.tanh(x.mean(1) @ self.keys(self.table).T))


class Lookup(Table):
    """Reads the table with what the inputs have in common with it."""

    def forward(self, x):
        keys = self.keys(self.table)
        return self.last((x.mean(1) @ keys.T).softmax(-1) @ keys[:, : len(self.table)])


class SharedFactor(Variational):
    """Noise that is one number a forward, whatever the batch."""

    def variational(self):
        yield from ()

    def forward(self, x):
        return x * torch.randn(()) if self.noise_is_on else x


class Factor(TwoLayers):
    def __init__(self):
        super().__init__()
        self.factor = SharedFactor()

    def forward(self, x):
        return self.last(self.factor(self.first(x).mean(1)))


class OtherNoise(TwoLayers):
    """Draws noise of its own, in eval mode too, before the first noisy layer."""

    def forward(self, x):
        return self.last(nn.functional.dropout(x.mean(1)))


class OneNumberLater(TwoLayers):
    """Draws one number per forward after the noisy layers, whatever the batch."""

    def forward(self, x):
        return self.last(torch.tanh(self.first(x.mean(1)))) + torch.randn(1)


class OneMaskLater(TwoLayers):
    """Drops the same units in all examples of a forward."""

    def forward(self, x):
        return self.last(self.first(x.mean(1)) * torch.empty(8).bernoulli_(0.5))


class MaskPerExample(TwoLayers):
    def forward(self, x):
        return self.last(nn.functional.dropout(self.first(x.mean(1))))


LAYOUTS = {  # network, examples, steps
    "encoder": (Encoder, 10, 6),
    "encoder, as many steps as examples": (Encoder, 6, 6),
    "patches": (Patches, 4, 5),
    "patches of one example": (Patches, 1, 5),
    "time first": (TimeFirst, 4, 5),
    "time first, as many steps as examples": (TimeFirst, 4, 4),
    "time first, one step, one example": (TimeFirst, 1, 1),
    "time first for a while": (TimeFirstForAWhile, 4, 5),
    "time first for a while, as many steps as examples": (TimeFirstForAWhile, 4, 4),
    "time first later": (TimeFirstLater, 4, 5),
    "time first later, as many steps as examples": (TimeFirstLater, 4, 4),
    "pooled by the size of the inputs": (Pooled, 4, 5),
    "softmax by the size of the inputs": (SpatialSoftmax, 4, 5),
    "beside": (Beside, 4, 5),
    "beside, one example": (Beside, 1, 5),
    "a gate alone": (GateAlone, 4, 5),
    "examples behind the units of a gate": (ExamplesBehindUnits, 4, 5),
    "a table": (lambda: Table(7), 4, 5),
    "a table of as many rows as examples": (lambda: Table(4), 4, 5),
    "a table of as many rows as all samples": (lambda: Table(400), 1, 5),
    "a table of as many rows as examples, looked up": (lambda: Lookup(4), 4, 5),
    "one number a forward": (Factor, 4, 5),
    "other noise before": (OtherNoise, 4, 5),
    "one number later": (OneNumberLater, 4, 5),
    "one number later, one example": (OneNumberLater, 1, 5),
    "one mask later": (OneMaskLater, 4, 5),
    "a mask per example": (MaskPerExample, 4, 5),
}


class TestLayersThatSeeAnotherOrder:
    """The samples have the distribution of single forwards, whatever a noisy layer has on its first axis."""

    @pytest.mark.parametrize("case", LAYOUTS)
    def test_the_noise_is_that_of_single_forwards(self, case):
        """n = 400 samples, seed 0: means within 6 standard errors, deviations within 30 %, 15 % on average."""
        build, batch, steps = LAYOUTS[case]
        torch.manual_seed(0)
        model, x, n = build(), torch.randn(batch, steps, 8), 400
        convert_(model, Rates(per="layer", rate=0.5))
        with torch.no_grad():
            model.last.log_alpha.fill_(-20.0)
        found = predict(model, x, n, nn.Identity())
        expected = predict(model, x, n, nn.Identity(), max_rows=batch)
        assert expected.std.min() > 0.002
        assert ((found.mean - expected.mean).abs() < 6 * expected.std * math.sqrt(2 / n)).all()
        ratio = found.std / expected.std
        assert (ratio - 1).abs().max() < 0.3
        assert ratio.mean().item() == pytest.approx(1, abs=0.15)

    def test_one_forward_is_enough_where_the_noise_grows_with_the_batch(self):
        model, seen = Encoder(), []
        convert_(model, Rates())
        model.last.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
        predict(model, torch.randn(6, 4, 8), samples=10)
        assert seen[-1] == 60
        assert len(seen) <= 2

    def test_other_noise_that_grows_with_the_batch_is_drawn_in_one_forward(self):
        model, seen = MaskPerExample(), []
        convert_(model, Rates())
        model.last.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
        predict(model, torch.randn(6, 4, 8), samples=10)
        assert seen == [60]

    def test_a_way_that_failed_is_not_tried_again(self):
        model, seen = Table(7), []
        convert_(model, Rates())
        model.keys.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
        predict(model, torch.randn(4, 5, 8), samples=10, max_rows=20)
        assert 10 <= len(seen) <= 12

    @pytest.mark.parametrize("model", [MLP([20, 10], inputs=30), LeNet5()], ids=["mlp", "lenet-5"])
    def test_ordinary_networks_share_what_comes_before_the_noise(self, model):
        seen = []
        convert_(model, Weights())
        first = next(module for module in model.modules() if isinstance(module, NoisyLayer))
        first.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
        shape = (30,) if isinstance(model, MLP) else (1, 28, 28)
        predict(model, torch.rand(3, *shape), samples=4)
        assert seen == [3]


class Tripled(nn.Linear):
    """A linear layer of three times its inputs."""

    def forward(self, x):
        return super().forward(3 * x)


class NoisyTripled(vbdrop.layers.Linear, Tripled):
    def forward(self, x):
        return self.noisy_forward(3 * x, MatrixProduct())


@pytest.fixture
def tripled(monkeypatch):
    """A model with a registered layer that computes something of its own."""
    monkeypatch.setitem(LAYERS, Tripled, NoisyTripled)
    torch.manual_seed(0)
    model = nn.Sequential(Tripled(5, 3))
    convert_(model, Weights())
    return model.eval()


class TestOwnForward:
    @pytest.mark.parametrize("max_rows", [8192, 2])
    def test_a_registered_layer_computes_what_it_says(self, tripled, max_rows):
        """n = 500 samples, seed 0, in closed form: within 6 standard errors, deviations within 15 %."""
        x, n = torch.randn(2, 5), 500
        found = predict(tripled, x, n, nn.Identity(), max_rows=max_rows)
        with torch.no_grad():
            std = (9 * x.square() @ tripled[0].log_sigma2.exp().T).sqrt()
            assert ((found.mean - tripled(x)).abs() < 6 * std / math.sqrt(n)).all()
        assert ((found.std / std - 1).abs() < 0.15).all()

    def test_its_inputs_are_repeated_at_its_door(self, tripled):
        seen = []
        tripled[0].register_forward_hook(lambda module, args, out: seen.append((len(args[0]), len(out))))
        predict(tripled, torch.randn(2, 5), samples=7)
        assert seen == [(2, 14)]

    def test_its_moments_have_no_rule(self, tripled):
        with pytest.raises(NoRuleError, match="no rule for the forward of NoisyTripled in '0'; use method='samples'"):
            predict(tripled, torch.randn(2, 5), method="moments")
