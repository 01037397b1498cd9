"""What a value comes from."""

import pytest
import torch
from torch import nn

from vbdrop.prediction.value_origins import Following, Origin


@pytest.fixture
def following():
    """A batch of two, of which there are to be three samples."""
    return Following(torch.ones(2, 5), rows=6)


def test_a_result_comes_from_the_noisiest_of_what_went_in(following):
    weight, x = torch.ones(4, 5), torch.ones(6, 5)
    noisy = following.put(torch.randn(6, 4), Origin.NOISE)
    with following:
        plain = weight * 2
        inputs = following.put(x, Origin.INPUTS) @ plain.T
        both = torch.cat([inputs, noisy], 1)
    assert [following.origin(each) for each in (plain, inputs, noisy, both)] == [0, 1, 2, 2]


def test_noise_without_all_samples_on_its_first_axis_is_mixed(following):
    noisy = following.put(torch.randn(6, 4), Origin.NOISE)
    with following:
        pooled, turned, flat = noisy.view(3, 2, 4).mean(1), noisy.T, noisy.flatten()
        parts = noisy.split(3)
        kept = torch.empty(6, 4)
        kept[:, :2] = noisy[:, :2]
    assert following.origin(pooled) is Origin.MIXED
    assert following.origin(turned) is Origin.MIXED
    assert {following.origin(part) for part in parts} == {Origin.MIXED}
    assert following.origin(flat) is Origin.NOISE  # 24 numbers: a multiple of the rows
    assert following.origin(kept) is Origin.NOISE


def test_other_noise_is_seen_and_that_of_a_layer_is_its_own(following):
    assert following.is_without_other_noise()
    nn.functional.dropout(torch.ones(3))
    assert not following.is_without_other_noise()
    following.apart(torch.randn, 3)
    assert following.is_without_other_noise()


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_other_noise_must_be_drawn_for_every_sample(following, shape):
    with following:
        torch.rand(6, 2)
        following.apart(torch.rand, 1)
        assert following.right
        with pytest.raises(ValueError, match="for every sample"):
            torch.rand(shape)
    assert not following.right


def test_what_is_not_allowed_ends_the_forward_even_if_it_catches_errors(following):
    following.require(True)
    assert following.right
    with pytest.raises(ValueError, match="for every sample"):
        following.require(False)
    assert not following.right
