import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.analysis.graph import trace
from vbdrop.compression import compress
from vbdrop.compression.masking import masked_copy
from vbdrop.compression.size_limits import SizeLimits, counts_at, parse_bytes, threshold_for
from vbdrop.compression.summary import Counts

X = torch.randn(2, 20)


@pytest.fixture(scope="module")
def model():
    """A network whose weights die evenly as the threshold goes from 10 to -10; at 3, two thirds of them live."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
    vbdrop.convert_(net, vbdrop.Weights())
    with torch.no_grad():
        for layer in (net[0], net[2]):
            log_alpha = torch.empty_like(layer.weight).uniform_(-10, 10)
            layer.log_sigma2.copy_(log_alpha + layer.weight.square().log())
    return net


@pytest.fixture(scope="module")
def traced(model):
    return trace(masked_copy(model, None), (X,))


@pytest.mark.parametrize(
    ("text", "expected"), [("20 kB", 20_000), ("1.5MB", 1_500_000), (" 3 KiB ", 3072), ("7 B", 7), ("2 MiB", 2**21)]
)
def test_sizes_are_read(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "20", "kB", "20 kb", "-1 B", "1e3 B", "20 kB!"])
def test_sizes_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="`max_bytes` must be a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    "arguments",
    [(0, None, None), (None, -1, None), (None, None, 1.5), (None, True, None), (None, "10 k", None)],
)
def test_limits_that_are_none_are_refused(arguments):
    with pytest.raises(ValueError, match="must be a whole number, at least 1"):
        SizeLimits.of(*arguments)


def test_every_limit_has_to_be_met():
    counts = Counts(weights=10, nonzeros=5, bytes=100, macs=50)
    assert SizeLimits(100, 50, 5).met_by(counts)
    assert not any(budget.met_by(counts) for budget in (SizeLimits(99), SizeLimits(macs=49), SizeLimits(weights=4)))
    with pytest.raises(ValueError, match="cannot"):
        SizeLimits(macs=1).met_by(Counts(macs=None))
    assert SizeLimits.of(None, None, None) is None


@pytest.mark.parametrize("budget", [SizeLimits(bytes=1500), SizeLimits(macs=400), SizeLimits(weights=200)], ids=str)
def test_the_highest_threshold_that_meets_the_budget_is_found(model, traced, budget):
    found = threshold_for(budget, model, None, traced)
    assert budget.met_by(counts_at(model, found, traced))
    assert not budget.met_by(counts_at(model, found + 0.1, traced))


def test_a_budget_that_is_met_anyway_changes_nothing(model, traced):
    assert threshold_for(SizeLimits(weights=900), model, None, traced) is None
    assert threshold_for(SizeLimits(weights=900), model, 1.5, traced) == 1.5


def test_compress_takes_the_budget_and_says_its_threshold(model):
    with pytest.warns(UserWarning, match=r"the cut at log alpha .* nats of evidence, .* it may ruin the model"):
        small = compress(model, X, max_weights=100)
    assert small.summary().after.nonzeros <= 100
    assert small.threshold < 3


def test_a_budget_that_nothing_meets_says_the_least(model, traced):
    with pytest.raises(ValueError, match=r"fits the model into 3 bytes; the lowest one .* gives \d+ bytes"):
        threshold_for(SizeLimits(bytes=3), model, None, traced)
    with pytest.raises(ValueError, match="no learned rates and does not fit"):
        compress(nn.Linear(20, 3), X, max_weights=10)


def test_without_a_trace_the_masked_weights_count(model):
    counts = counts_at(model, 0.0, None)
    assert counts.weights == 900
    assert counts.nonzeros == pytest.approx(450, abs=60)


@torch.no_grad()
def test_what_needs_a_new_forward_does_not_count_where_there_is_none():
    class Asking(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(20, 3)

        def forward(self, x):
            return self.fc(x) if x.shape[0] > 16 else -self.fc(x)

    model = Asking().eval()
    model.fc.weight[:, :10] = 0
    traced = trace(model, (X,))
    assert counts_at(model, None, traced).weights == compress(model, X).summary().after.weights == 60


class Centred(nn.Linear):
    """A layer that computes its weight, with a parameter besides."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return nn.functional.linear(x, self.gain * (self.weight - self.weight.mean()), self.bias)


def test_a_layer_that_computes_its_weight_counts_with_its_class_or_without():
    net = nn.Sequential(nn.Linear(20, 4), Centred(4, 3), nn.Linear(3, 2)).eval()
    traced = trace(masked_copy(net, None), (X,))
    assert counts_at(net, None, traced).bytes == 4 * sum(p.numel() for p in net.parameters())
    with torch.no_grad():
        net[2].weight[:, :1] = 0.0
    counts = counts_at(net, None, traced)
    assert counts.weights == 80 + 8 + 4
    assert counts == vbdrop.compress(net, X).summary().after
