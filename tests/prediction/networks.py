"""Small converted networks."""

from torch import nn

from vbdrop import Rates, Weights, convert_


def linear(log_sigma2: float = -1.0) -> nn.Linear:
    """A noisy linear layer with the same variance everywhere."""
    layer = nn.Linear(5, 3)
    convert_(layer, Weights(threshold=50.0))
    nn.init.constant_(layer.log_sigma2, log_sigma2)
    return layer


def classifier(*modes) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 4))
    convert_(model, *(modes or [Rates(rate=0.5)]))
    return model
