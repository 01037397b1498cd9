import sys
from importlib.resources import files

import numpy as np
import pytest
import torch

from vbdrop.data import digits as load
from vbdrop.data.digits import Digits


@pytest.fixture(scope="module")
def data() -> Digits:
    return load()


@pytest.mark.parametrize(("part", "count"), [("train", 8000), ("test", 2000)])
def test_each_part_is_ready_to_train_on(data, part, count):
    images, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
    assert images.shape == (count, 1, 28, 28)
    assert images.dtype == torch.float32
    assert (images.amin((1, 2, 3)) == 0).all()
    assert images.amax() == 1
    assert torch.equal((images * 255).round(), images * 255)
    assert labels.shape == (count,)
    assert labels.dtype == torch.int64


@pytest.mark.parametrize(("part", "per_class"), [("train", 800), ("test", 200)])
def test_the_classes_are_balanced_and_mixed(data, part, per_class):
    labels = getattr(data, f"{part}_labels")
    assert labels.bincount().tolist() == [per_class] * 10
    for start in range(0, len(labels), 500):
        assert labels[start : start + 500].bincount(minlength=10).min() >= 20


def test_no_image_occurs_twice(data):
    images = torch.cat([data.train_images, data.test_images])
    assert len({image.numpy().tobytes() for image in images}) == 10_000


def test_the_labels_belong_to_the_images(data):
    """The nearest class mean is right for four digits of five; shuffled labels would give one of ten."""
    train, test = data.train_images.numpy().reshape(-1, 784), data.test_images.numpy().reshape(-1, 784)
    means = np.stack([train[data.train_labels.numpy() == label].mean(0) for label in range(10)])
    squared = (means**2).sum(1) - 2 * test @ means.T
    right = squared.argmin(1) == data.test_labels.numpy()
    assert right.mean() > 0.78


def test_a_call_does_not_see_what_another_changed():
    load().train_images.zero_()
    assert load().train_images.sum() > 0


def test_a_damaged_file_is_refused(monkeypatch):
    monkeypatch.setattr(sys.modules["vbdrop.data.digits"], "SHA256", "0" * 64)
    with pytest.raises(RuntimeError, match=r"sha256 .* install vbdrop again"):
        load()


def test_the_file_stays_small():
    assert len(files("vbdrop.data").joinpath("digits.npz").read_bytes()) < 2_000_000
