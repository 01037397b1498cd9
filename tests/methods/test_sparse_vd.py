"""Sparse variational dropout has Molchanov's penalty."""

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.methods import SparseVD


def test_the_penalty_is_the_published_approximation():
    model = SparseVD().build(nn.Linear(5, 3))
    (entry,) = model.variational()
    log_alpha = entry.log_alpha_full().double()
    k1, k2, k3 = 0.63576, 1.87320, 1.48695
    minus_kl = k1 * torch.sigmoid(k2 + k3 * log_alpha) - 0.5 * torch.log1p(torch.exp(-log_alpha)) - k1
    assert vbdrop.kl(model).item() == pytest.approx(-minus_kl.sum().item(), rel=1e-5)


def test_threshold_and_initial_variance_are_the_published_ones():
    assert (SparseVD().threshold, SparseVD().log_sigma2) == (3.0, -10.0)
