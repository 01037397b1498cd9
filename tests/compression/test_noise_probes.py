import pytest
import torch
from torch import nn
from torch.nn.functional import linear

import vbdrop
from vbdrop.compression.agreement import disagreement
from vbdrop.compression.noise_probes import disagreement_under_noise, noise_on_layers


class BehindAClosedDoor(nn.Module):
    """A layer whose weight is also read directly, behind an activation that no ordinary input opens."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)
        nn.init.constant_(self.first.bias, -50.0)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return self.second(hidden) + linear(hidden, self.second.weight)


def with_dead_weights() -> nn.Module:
    torch.manual_seed(0)
    model = BehindAClosedDoor()
    vbdrop.convert_(model, vbdrop.Weights())
    with torch.no_grad():
        model.second.log_sigma2[:, ::2] = 20.0
    return model.eval()


def test_a_weight_that_is_also_read_directly_is_refused_even_if_the_example_inputs_do_not_show_it():
    model, x = with_dead_weights(), torch.randn(5, 4)
    assert not torch.relu(model.first(x)).any()
    with pytest.raises(ValueError, match=r"under noise on its layers.*'second' are also read outside"):
        vbdrop.compress(model, x)


def test_it_is_compressed_if_nothing_of_it_is_dead():
    model, x = with_dead_weights(), torch.randn(5, 4)
    with torch.no_grad():
        model.second.log_sigma2.fill_(-20.0)
    assert disagreement(model, vbdrop.compress(model, x).model, (x,), {}) is None


def test_noise_is_gone_after_the_block_and_the_same_for_equal_models():
    model, x = with_dead_weights(), torch.randn(5, 4)
    expected = model(x)
    with noise_on_layers(model, 1.0):
        assert not torch.equal(model(x), expected)
    assert torch.equal(model(x), expected)
    assert disagreement_under_noise(model, model, (x,), {}) is None
