"""Small real methods and data, for the tests of the loop."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout

from vbdrop.convert import convert_, deterministic_
from vbdrop.layers import Units, Weights
from vbdrop.objective import kl
from vbdrop.train import Batch, Method


@dataclass(frozen=True)
class Noisy(Method):
    """Dropout on the inputs, so that every step draws noise."""

    rate: float = 0.2
    name = "noisy"

    def loss(self, model, batch, step):
        return cross_entropy(model(dropout(batch.inputs, self.rate)), batch.targets)


@dataclass(frozen=True)
class Sparse(Method):
    """A variational network, with a strong KL so that weights die within a few epochs."""

    weight: float = 1.0
    name = "sparse"

    def build(self, model):
        convert_(model, Weights())
        return model

    def loss(self, model, batch, step):
        nll = cross_entropy(model(batch.inputs), batch.targets)
        return nll + self.weight * step.progress * kl(model) / step.n_train

    def finish(self, model):
        deterministic_(model)
        return model


@dataclass(frozen=True)
class Gated(Method):
    """Gates on units, with a penalty under which most of them die within a few epochs."""

    weight: float = 2.0
    name = "gated"
    shrinks = True

    def build(self, model):
        convert_(model, Units(log_sigma2=-0.5))
        return model

    def loss(self, model, batch, step):
        nll = cross_entropy(model(batch.inputs), batch.targets)
        return nll + self.weight * kl(model) / step.n_train

    def finish(self, model):
        return deterministic_(model)


@pytest.fixture
def noisy():
    return Noisy()


@pytest.fixture
def sparse():
    return Sparse()


@pytest.fixture
def gated():
    return Gated()


@pytest.fixture
def examples():
    """Two classes, set apart by the first two of eight inputs."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(230, 8, generator=generator)
    return Batch(inputs, (inputs[:, 0] + inputs[:, 1] > 0).long())


@pytest.fixture
def network():
    """Builds the same network at every call; it has parameters and buffers."""

    def build():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))

    return build
