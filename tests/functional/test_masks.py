import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vbdrop.functional import alive, alive_given, masked
from vbdrop.priors import log_alpha_of


@given(
    theta=st.floats(1e-15, 1e3),
    negative=st.booleans(),
    log_sigma2=st.floats(-60, 20),
    threshold=st.floats(-20, 20),
)
def test_alive_is_log_alpha_below_the_threshold(theta, negative, log_sigma2, threshold):
    mean, rate = torch.tensor([-theta if negative else theta]), torch.tensor([log_sigma2])
    log_alpha = log_alpha_of(mean.double(), rate.double()).item()
    if abs(log_alpha - threshold) > 1e-4:  # float32 decides what is nearer
        assert alive(mean, rate, threshold).item() is (log_alpha < threshold)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_weight_exactly_at_the_threshold_is_dead(dtype):
    theta = torch.tensor([2.0], dtype=dtype)
    log_sigma2 = torch.tensor([2.0], dtype=dtype).square().log()
    assert not alive(theta, log_sigma2, 0.0).item()
    assert alive(theta, log_sigma2, 1e-5).item()


def test_a_mean_of_zero_is_dead_at_every_threshold_and_variance():
    log_sigma2 = torch.tensor([-200.0, -80.0, 0.0, 80.0])
    for threshold in (-5.0, 3.0, 50.0, 1e9):
        assert not alive(torch.zeros(4), log_sigma2, threshold).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threshold", [89.0, 1e9, math.inf])
def test_a_threshold_beyond_every_rate_keeps_all_that_is_not_zero(dtype, threshold):
    theta = torch.tensor([1e-12, 1.0, -30.0], dtype=dtype)
    assert alive(theta, torch.full((3,), 10.0, dtype=dtype), threshold).all()


def test_a_threshold_below_every_rate_keeps_nothing():
    assert not alive(torch.ones(2), torch.zeros(2), -1e9).any()


def test_what_is_alive_follows_from_the_variances_without_a_gradient_or_a_change():
    theta = torch.tensor([1.0, 0.1, 0.0], requires_grad=True)
    sigma2 = torch.ones(3, requires_grad=True)
    assert alive_given(theta, sigma2, 3.0).tolist() == [True, False, False]
    assert sigma2.tolist() == [1.0] * 3


def test_nan_is_alive_so_that_outputs_show_it():
    nan, one = torch.tensor([math.nan]), torch.zeros(1)
    assert alive(nan, one, 3.0).all()
    assert alive(torch.ones(1), nan, 3.0).all()


def test_half_precision_means_are_judged_in_float32():
    """The square of 1e-4 is zero in float16."""
    theta = torch.tensor([1e-4], dtype=torch.float16)
    assert alive(theta, torch.tensor([-25.0]), 3.0).item()


def test_masked_gives_exact_zeros_and_the_gradient_of_what_is_kept():
    theta = torch.tensor([1.0, math.nan, -2.0], requires_grad=True)
    out = masked(theta, torch.tensor([True, False, False]))
    out.sum().backward()
    assert out.tolist() == [1.0, 0.0, 0.0]
    assert theta.grad.tolist() == [1.0, 0.0, 0.0]


def test_masked_keeps_the_dtype():
    assert masked(torch.ones(2, dtype=torch.bfloat16), torch.tensor([True, False])).dtype == torch.bfloat16
