import pytest
import torch
from tests.compression.nets import randomise_
from tests.compression.streams import Words
from torch import nn

from vbdrop.compression import compress
from vbdrop.compression.summary import Counts, stored_bytes


def test_bytes_are_dense_or_bits_and_values_whichever_is_less():
    dense, sparse = torch.ones(100), torch.zeros(100)
    sparse[:3] = 1
    assert stored_bytes(dense) == 400
    assert stored_bytes(sparse) == 13 + 12
    assert stored_bytes(sparse.double()) == 13 + 12
    assert stored_bytes(torch.tensor([3, 700])) == 4
    assert stored_bytes(torch.zeros(0, dtype=torch.int64)) == 0


def test_integers_that_select_nothing_count_as_they_are_stored():
    assert stored_bytes(torch.full((5,), -100)) == 40
    assert stored_bytes(torch.arange(49 * 49).reshape(49, 49)) == 8 * 49 * 49
    assert stored_bytes(torch.tensor([3, 3])) == 16
    assert stored_bytes(torch.tensor(7)) == 8
    assert stored_bytes(torch.ones(5, dtype=torch.bool)) == 5
    assert stored_bytes(torch.ones(5, dtype=torch.complex64)) == 40


def test_a_row_a_layer_and_the_totals():
    model = randomise_(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)))
    with torch.no_grad():
        model[0].weight[:2] = 0
        model[4].weight[0] = 0
    summary = compress(model, torch.randn(2, 1, 6, 6)).summary()
    conv, linear = summary.layers
    assert (conv.name, conv.shape, conv.small_shape) == ("0", (4, 1, 3, 3), (2, 1, 3, 3))
    assert conv.before == Counts(36, 36, 144, 576)
    assert conv.after == Counts(18, 18, 72, 288)
    assert (linear.after.weights, linear.after.nonzeros) == (96, 64)
    assert summary.before.weights == 36 + 192
    assert summary.after.macs == 288 + 96
    assert summary.before.bytes == 4 * (36 + 4 + 16 + 192 + 3) + 8  # and the counter of the batch norm
    text = str(summary)
    assert text.split()[:6] == ["layer", "shape", "now", "weights", "now", "non-zero"]
    assert text.splitlines()[-1].split()[0] == "total"
    assert repr(summary) == text


def test_what_is_gone_and_what_was_left_is_said():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.last((self.a(x) + self.b(x)).cumprod(1))

    model = randomise_(Net())
    with torch.no_grad():
        model.a.weight.zero_()
    small = compress(model, torch.randn(2, 4))
    text = str(small.summary())
    assert "gone" in next(line for line in text.splitlines() if line.startswith("a "))
    assert "left: cumprod: the operation aten.cumprod.default is not known" in text
    assert small.summary().left == small.left


def test_multiply_adds_that_were_not_traced_are_not_guessed():
    class Matrix(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 2))

        def forward(self, x):
            return (x.unsqueeze(-1) * self.weight).sum(1)

    summary = compress(Matrix(), torch.randn(2, 4)).summary()
    assert summary.before.macs is None
    assert next(line for line in str(summary).splitlines() if line.startswith("total")).endswith("?")


def test_a_module_in_two_places_counts_once():
    layer = nn.Linear(4, 4)
    summary = compress(nn.Sequential(layer, nn.ReLU(), layer), torch.randn(2, 4)).summary()
    assert len(summary.layers) == 1
    assert summary.before == Counts(16, 16, 80, 32)


@pytest.mark.parametrize("rewrite", [True, False])
def test_a_tied_weight_counts_under_whichever_of_its_names_it_stays(rewrite):
    model = Words(50, residual=True)
    with torch.no_grad():
        model.narrow.weight.zero_()
    small = compress(model, torch.randint(50, (2, 5)), rewrite=rewrite, rewrite_gain=0.0)
    after = small.summary().after
    kept = {id(p): p for p in small.model.parameters() if p.dim() > 1}.values()
    assert after.weights == sum(p.numel() for p in kept) >= 400
    assert after.macs >= 5 * 400, "the last layer is there"
    assert ("new forward" in repr(small)) is rewrite


def test_a_bias_that_a_shared_module_gets_counts_once():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.twice, self.last = nn.Linear(8, 6), nn.Linear(8, 6), nn.Linear(6, 5), nn.Linear(5, 3)
            self.twice.bias = None
            self.again = self.twice

        def forward(self, x):
            both = torch.relu(self.twice(torch.relu(self.a(x)))) + torch.relu(self.again(torch.relu(self.b(x))))
            return self.last(both)

    model = randomise_(Net())
    with torch.no_grad():
        for layer in (model.a, model.b):
            layer.weight[:2], layer.bias[:2] = 0.0, 1.0
    small = compress(model, torch.randn(2, 8))
    assert small.model.twice.bias is small.model.again.bias is not None
    assert small.summary().after.bytes == 4 * sum(parameter.numel() for parameter in small.model.parameters())
