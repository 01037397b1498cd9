import pytest
import torch

from vbdrop.data import NORMALISATIONS, normalise


def images(count: int, *shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    brightness = torch.randint(20, 256, (count, *shape[:1], 1, 1), generator=generator)
    return (torch.rand(count, *shape, generator=generator) * brightness).byte()


TRAIN, TEST = images(400, 3, 4, 4), images(50, 3, 4, 4, seed=1)


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_the_result_is_float_of_the_same_shape_and_the_bytes_stay(name):
    train, test = TRAIN.clone(), TEST.clone()
    results = normalise(name, train, test)
    assert [(result.dtype, result.shape) for result in results] == [(torch.float32, t.shape) for t in (TRAIN, TEST)]
    assert torch.equal(train, TRAIN)
    assert torch.equal(test, TEST)
    assert all(result.isfinite().all() for result in results)


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_nothing_is_estimated_on_the_test_images(name):
    (alone,) = normalise(name, TRAIN)
    train, first = normalise(name, TRAIN, TEST[:1])
    _, both = normalise(name, TRAIN, TEST)
    assert torch.equal(train, alone)
    torch.testing.assert_close(first, both[:1])


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_constant_pixels_give_finite_inputs(name):
    blank = torch.zeros(20, 1, 3, 3, dtype=torch.uint8)
    assert all(result.isfinite().all() for result in normalise(name, blank, blank + 255))


@pytest.mark.parametrize(
    ("name", "black", "white"), [("unit", 0.0, 1.0), ("caffe", 0.0, 255 / 256), ("symmetric", -1.0, 1.0)]
)
def test_fixed_scales(name, black, white):
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2)
    assert normalise(name, pixels)[0].flatten().tolist() == [black, white]


def test_centred_subtracts_the_mean_image_of_the_training_data():
    train, test = normalise("centred", TRAIN, TEST)
    torch.testing.assert_close(train.mean(0), torch.zeros(3, 4, 4), rtol=0, atol=1e-6)
    torch.testing.assert_close(test, TEST / 256 - (TRAIN / 256).mean(0))


def test_standardised_gives_each_channel_mean_0_and_sd_1():
    train, test = normalise("standardised", TRAIN, TEST)
    torch.testing.assert_close(train.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(train.std((0, 2, 3), correction=0), torch.ones(3))
    assert test.mean((0, 2, 3)).abs().max() > 1e-3


def test_whitened_pixels_are_uncorrelated_and_stay_where_they_were():
    (train,) = normalise("whitened", TRAIN)
    flat = train.flatten(1).double()
    covariance = flat.T @ flat / len(flat)
    torch.testing.assert_close(covariance, torch.eye(48, dtype=torch.float64), rtol=0, atol=1e-4)
    # ZCA is the whitening nearest to the original: each whitened pixel goes with its own pixel most of all.
    original = TRAIN.flatten(1).double()
    crossed = (original - original.mean(0)).T @ flat
    assert torch.equal(crossed.argmax(0), torch.arange(48))


def test_whitening_holds_for_eigenvalues_that_are_far_apart():
    """Single precision would lose the small ones beside the large: see that it does."""
    generator = torch.Generator().manual_seed(2)
    common = torch.randint(0, 254, (2_000, 1, 1, 1), generator=generator)
    train = (common + torch.randint(0, 2, (2_000, 1, 8, 8), generator=generator)).byte()
    flat = normalise("whitened", train)[0].flatten(1).double()
    torch.testing.assert_close(flat.T @ flat / 2_000, torch.eye(64, dtype=torch.float64), rtol=0, atol=1e-2)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"`by` must be one of unit, caffe, .*whitened; got 'zca'"):
        normalise("zca", TRAIN)


@pytest.mark.parametrize("bad", [TRAIN.float(), TRAIN[0]])
def test_images_that_are_no_bytes_are_refused(bad):
    with pytest.raises(ValueError, match="images must be uint8 of shape count x channels x height x width; got"):
        normalise("unit", TRAIN, bad)
